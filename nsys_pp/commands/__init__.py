"""Commands: one public function per command."""

from nsys_pp.commands.align import AlignResult, align
from nsys_pp.commands.chart import ChartResult, chart
from nsys_pp.commands.compare import CompareResult, compare
from nsys_pp.commands.export import ExportJobsResult, export_jobs
from nsys_pp.commands.extract import Extracted, extract, extract_all
from nsys_pp.commands.info import ReportInfo, info
from nsys_pp.commands.merge import MergeResult, TraceFormat, merge
from nsys_pp.commands.pipeline import PIPELINE_TABLES, PipelineResult, pipeline
from nsys_pp.commands.project import project
from nsys_pp.commands.recipe import InstalledRecipes, install_recipes, recipe_folder
from nsys_pp.commands.summarise import SUMMARY_TABLES, SummaryResult, summarise
from nsys_pp.commands.training_files import write_paddle_of, write_step_tasks_of
from nsys_pp.compose.clocks import ClockOptions
from nsys_pp.compose.progress import Progress
from nsys_pp.compose.run_training import TrainingOptions
from nsys_pp.compose.trace_layout import Overrides
from nsys_pp.projection.ranges import OPS, Scope, parse_ops
from nsys_pp.read import find_reports
from nsys_pp.roster.file_names import check_rank_pattern
from nsys_pp.roster.layout import Layout, parse_layout
from nsys_pp.tables.summary.table import COLUMNS_OF_GROUP as SUMMARY_GROUPS
from nsys_pp.tables.summary.table import describe_columns
from nsys_pp.training.run.orders import SCHEDULES
from nsys_pp.write.files import check_output
from nsys_pp.write.tables.frames import (
    FORMATS,
    files_in,
    format_table,
    format_tables,
    is_one_file,
    print_table,
    write_table,
    write_tables,
)
from nsys_pp.write.tables.summary_columns import convert_times
from nsys_pp.write.tables.summary_markdown import format_summary, write_summary
from nsys_pp.write.tables.summary_rows import Shape, find_sort_column, first_rows, sort_rows
from nsys_pp.write.tables.summary_text import TextTable, print_summary
from nsys_pp.write.trace.tracks import DETAILS, Detail

__all__ = [
    "DETAILS",
    "FORMATS",
    "OPS",
    "PIPELINE_TABLES",
    "SCHEDULES",
    "SUMMARY_GROUPS",
    "SUMMARY_TABLES",
    "AlignResult",
    "ChartResult",
    "ClockOptions",
    "CompareResult",
    "Detail",
    "ExportJobsResult",
    "Extracted",
    "InstalledRecipes",
    "Layout",
    "MergeResult",
    "Overrides",
    "PipelineResult",
    "Progress",
    "ReportInfo",
    "Scope",
    "Shape",
    "SummaryResult",
    "TextTable",
    "TraceFormat",
    "TrainingOptions",
    "align",
    "chart",
    "check_output",
    "check_rank_pattern",
    "compare",
    "convert_times",
    "describe_columns",
    "export_jobs",
    "extract",
    "extract_all",
    "files_in",
    "find_reports",
    "find_sort_column",
    "first_rows",
    "format_summary",
    "format_table",
    "format_tables",
    "info",
    "install_recipes",
    "is_one_file",
    "merge",
    "parse_layout",
    "parse_ops",
    "pipeline",
    "print_summary",
    "print_table",
    "project",
    "recipe_folder",
    "sort_rows",
    "summarise",
    "write_paddle_of",
    "write_step_tasks_of",
    "write_summary",
    "write_table",
    "write_tables",
]
