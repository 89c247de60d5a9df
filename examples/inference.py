# %% [markdown]
# # One GPU that serves a model
#
# A single report is enough for questions like: how long do prefill and decode take, what runs in them, and why is the GPU idle between
# batches? `REPORT` below names your report; to try it, draw a simulated one at the root of the repository:
#
# ```sh
# python -m fixtures.serving.simulate examples/reports vllm 1
# ```

# %% [script]
from contextlib import suppress

display = print
with suppress(ImportError):  # as a plain script, values are printed
    from IPython.display import display

# %%
import os

import polars as pl

import nsys_pp

REPORT = os.environ.get("NSYS_PP_EXAMPLE_REPORTS", "reports/rank0.sqlite")
recorded = nsys_pp.info(REPORT).reports[0]
contents = recorded.contents
print(
    f"nsys {recorded.session.nsys_version}, {contents.op_count:,} operations on {len(contents.gpus)} GPU(s)"
)
print("not recorded:", ", ".join(contents.missing["kind"]) or "nothing")

# %% [markdown]
# ## Batches
#
# Ranges that the engine names are iterations: prefill, decode, or both mixed.

# %%
run = nsys_pp.pipeline(REPORT)
print("\n".join(run.verdict.lines))

# %%
iterations = run.tables()["iterations"]
display(
    iterations.select(
        "batch", "iteration_count", "median_ns", "p99_ns", "busy_fraction", "median_gap_ns", "tokens_per_s"
    )
)

# %% [markdown]
# What the launching thread did while the GPU waited for the next iteration:

# %%
activities = [
    column for column in iterations.columns if column.endswith("ing_fraction") or column == "other_fraction"
]
display(
    iterations.unpivot(activities, index="batch", variable_name="activity", value_name="fraction")
    .filter(pl.col("fraction") > 0.05)
    .sort("batch", "fraction", descending=[False, True])
    .with_columns(pl.col("activity").str.strip_suffix("_fraction"), pl.col("fraction").round(3))
)

# %% [markdown]
# ## Kernels
#
# `summary` has the tables of times; families come from the names of kernels.

# %%
summary = nsys_pp.summary(REPORT, tables=["families", "idle"])
display(summary)

# %% [markdown]
# ## Every batch at the time of its kernels
#
# `project` returns each NVTX range with the interval of the GPU operations launched in it. The ten batches that kept the GPU longest, and
# how much of that time it was busy:

# %%
ranges = nsys_pp.project(REPORT).ranges
display(
    ranges.filter(pl.col("depth") == pl.col("depth").min())
    .with_columns(
        gpu_ns=pl.col("gpu_end_ns") - pl.col("gpu_start_ns"),
        busy_fraction=(pl.col("busy_ns") / (pl.col("gpu_end_ns") - pl.col("gpu_start_ns"))).round(3),
    )
    .sort("gpu_ns", descending=True)
    .select("name", "gpu_ns", "busy_fraction", "op_count")
    .head(10)
)
