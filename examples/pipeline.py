# %% [markdown]
# # A pipeline run: where did the step go?
#
# Reports of all ranks of a training (`.sqlite`, `.nsys-rep` or parts; a folder or a list) become one result: a verdict, tables as
# polars frames, a chart and a trace. `REPORTS` below names the simulated run of the repository; name your own folder.

# %% [script]
from contextlib import suppress

display = print
with suppress(ImportError):  # as a plain script, values are printed
    from IPython.display import display

# %%
import os
from pathlib import Path

import polars as pl

import nsys_pp

REPORTS = os.environ.get("NSYS_PP_EXAMPLE_REPORTS", "../fixtures/pipeline")
run = nsys_pp.pipeline(REPORTS)
print("\n".join(run.verdict.lines))

# %% [markdown]
# The result shows itself: chart and tables, with times in units that people read.

# %%
display(run)

# %% [markdown]
# ## Tables are frames
#
# `run.tables()` has all of them; times are integers in nanoseconds. For each stage, what its GPU waited for:

# %%
stages = run.tables()["stages"]
causes = [
    *("message_wait_ns", "message_transfer_ns", "collective_wait_ns", "collective_transfer_ns"),
    *("copy_ns", "data_ns", "host_ns", "idle_ns", "unknown_ns"),
]
display(
    stages.unpivot(causes, index="stage", variable_name="cause", value_name="time_ns")
    .filter(pl.col("time_ns") > 0)
    .with_columns(share=(pl.col("time_ns") / pl.col("time_ns").sum().over("stage")).round(3))
    .sort("stage", "time_ns", descending=[False, True])
)

# %% [markdown]
# ## Jobs, one row each
#
# Which forward took longest on its GPU, compared with the median of its stage's forwards?

# %%
jobs = run.training.jobs.join(run.training.lanes.select("lane", "rank", "stage"), on="lane")
forwards = jobs.filter(kind="forward").with_columns(span_ns=pl.col("end_ns") - pl.col("start_ns"))
display(
    forwards.with_columns(
        times_median=(pl.col("span_ns") / pl.col("span_ns").median().over("stage")).round(2)
    )
    .sort("times_median", descending=True)
    .select("rank", "stage", "step", "micro_batch", "span_ns", "times_median")
    .head(5)
)

# %% [markdown]
# The same in SQL (`nsys-pp sql --explain` lists tables and columns):

# %%
display(
    nsys_pp.sql(
        "SELECT kind, count(*) AS jobs, max(end_ns - start_ns) AS longest_ns FROM jobs GROUP BY kind ORDER BY kind",
        REPORTS,
    )
)

# %% [markdown]
# ## Can times of different machines be compared?
#
# Each clock was aligned by the collectives that ranks share; `bound_ns` is how far off it may still be.

# %%
display(
    nsys_pp.align(REPORTS).clocks.select(
        "machine", "source", "offset_ns", "drift_ppm", "bound_ns", "collective_count"
    )
)

# %% [markdown]
# ## The trace
#
# One Perfetto trace of all ranks; `nsys_pp.open_output("run.pftrace")` shows it in the browser.

# %%
merged = nsys_pp.merge(REPORTS, "run.pftrace", force=True)
print(f"{Path(merged.output).name}: {Path(merged.output).stat().st_size:,} bytes")
