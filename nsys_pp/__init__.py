"""nsys-pp: GPU intervals of NVTX ranges, from Nsight Systems reports of many machines, on one clock.

    import nsys_pp

    nsys_pp.merge("runs/7", "run.pftrace", layout="pp=4,tp=2", processes=4)
    result = nsys_pp.pipeline("runs/7", steps="10:12")
    result.tables()["stages"]

Each command is one function, whose result has polars frames; keywords that several commands share are those
of `RunOptions` and its bases. Names are imported on first use, so that `import nsys_pp` is cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nsys_pp.commands.align import AlignResult, align
    from nsys_pp.commands.chart import ChartResult, chart
    from nsys_pp.commands.check import CheckResult, check
    from nsys_pp.commands.compare import COMPARE_TABLES, CompareResult, compare
    from nsys_pp.commands.extract import ExtractResult, extract
    from nsys_pp.commands.info import InfoResult, info
    from nsys_pp.commands.merge import MergeResult, merge
    from nsys_pp.commands.open import OpenResult, open_output
    from nsys_pp.commands.pipeline import (
        PIPELINE_TABLES,
        ExplainResult,
        PipelineResult,
        explain_jobs,
        pipeline,
    )
    from nsys_pp.commands.project import ProjectResult, project
    from nsys_pp.commands.report import ReportResult, report
    from nsys_pp.commands.scrub import ScrubResult, scrub
    from nsys_pp.commands.sql import SqlResult, sql
    from nsys_pp.commands.summary import SUMMARY_TABLES, SummaryResult, summary
    from nsys_pp.commands.whatif import WhatIfResult, whatif
    from nsys_pp.errors import NsysPPError, OptionError
    from nsys_pp.run.options import (
        BatchOptions,
        ClockOptions,
        JobOptions,
        RosterOptions,
        RunOptions,
        StepOptions,
    )

    __version__: str

_MODULES = {
    "nsys_pp.commands.align": ("AlignResult", "align"),
    "nsys_pp.commands.chart": ("ChartResult", "chart"),
    "nsys_pp.commands.check": ("CheckResult", "check"),
    "nsys_pp.commands.compare": ("COMPARE_TABLES", "CompareResult", "compare"),
    "nsys_pp.commands.extract": ("ExtractResult", "extract"),
    "nsys_pp.commands.info": ("InfoResult", "info"),
    "nsys_pp.commands.merge": ("MergeResult", "merge"),
    "nsys_pp.commands.open": ("OpenResult", "open_output"),
    "nsys_pp.commands.pipeline": (
        *("ExplainResult", "PIPELINE_TABLES", "PipelineResult", "explain_jobs", "pipeline"),
    ),
    "nsys_pp.commands.project": ("ProjectResult", "project"),
    "nsys_pp.commands.report": ("ReportResult", "report"),
    "nsys_pp.commands.scrub": ("ScrubResult", "scrub"),
    "nsys_pp.commands.sql": ("SqlResult", "sql"),
    "nsys_pp.commands.summary": ("SUMMARY_TABLES", "SummaryResult", "summary"),
    "nsys_pp.commands.whatif": ("WhatIfResult", "whatif"),
    "nsys_pp.run.options": (
        *("BatchOptions", "ClockOptions", "JobOptions", "RosterOptions", "RunOptions", "StepOptions"),
    ),
    "nsys_pp.errors": ("NsysPPError", "OptionError"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "COMPARE_TABLES",
    "PIPELINE_TABLES",
    "SUMMARY_TABLES",
    "AlignResult",
    "BatchOptions",
    "ChartResult",
    "CheckResult",
    "ClockOptions",
    "CompareResult",
    "ExplainResult",
    "ExtractResult",
    "InfoResult",
    "JobOptions",
    "MergeResult",
    "NsysPPError",
    "OpenResult",
    "OptionError",
    "PipelineResult",
    "ProjectResult",
    "ReportResult",
    "RosterOptions",
    "RunOptions",
    "ScrubResult",
    "SqlResult",
    "StepOptions",
    "SummaryResult",
    "WhatIfResult",
    "__version__",
    "align",
    "chart",
    "check",
    "compare",
    "explain_jobs",
    "extract",
    "info",
    "merge",
    "open_output",
    "pipeline",
    "project",
    "report",
    "scrub",
    "sql",
    "summary",
    "whatif",
]


def __getattr__(name: str) -> Any:
    """Import a name of the library on first use."""
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("nsys-pp")
    elif name in _MODULE_OF:
        value = getattr(import_module(_MODULE_OF[name]), name)
    else:
        raise AttributeError(f"module `nsys_pp` has no attribute `{name}`")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the names of the library."""
    return sorted({*globals(), *__all__})
