"""Composes the stages: one module and one function per command."""

from nsys_pp.api.align import Aligned, align
from nsys_pp.api.clocks import ClockOptions
from nsys_pp.api.extract import Extracted, extract, extract_all
from nsys_pp.api.info import Info, info
from nsys_pp.api.merge import Merged, TraceFormat, merge
from nsys_pp.api.plan import Told
from nsys_pp.api.progress import Progress
from nsys_pp.api.project import project
from nsys_pp.model.file_names import check_rank_pattern
from nsys_pp.model.layout import Layout, parse_layout
from nsys_pp.project.ranges import OPS, Scope, parse_ops
from nsys_pp.read import find_reports
from nsys_pp.write.files import check_output
from nsys_pp.write.tables import FORMATS, format_table, print_table, write_table
from nsys_pp.write.tracks import DETAILS, Detail

__all__ = [
    "DETAILS",
    "FORMATS",
    "OPS",
    "Aligned",
    "ClockOptions",
    "Detail",
    "Extracted",
    "Info",
    "Layout",
    "Merged",
    "Progress",
    "Scope",
    "Told",
    "TraceFormat",
    "align",
    "check_output",
    "check_rank_pattern",
    "extract",
    "extract_all",
    "find_reports",
    "format_table",
    "info",
    "merge",
    "parse_layout",
    "parse_ops",
    "print_table",
    "project",
    "write_table",
]
