"""All options of the command line: one name, one meaning and one help text in every command.

Click's commands, the library's checks and the recipes of nsys read this table. It imports the standard
library alone, as `--help` and the Python of nsys need it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

Detail = Literal["jobs", "ranges", "kernels", "cpu"]
# Levels of detail of a trace; each has more than the one before.
DETAILS: tuple[Detail, ...] = ("jobs", "ranges", "kernels", "cpu")

# Kinds of data that a trace has on request (`--show`).
SHOW_KINDS: Mapping[str, str] = {
    "os": "calls of the operating system",
    "states": "threads on and off processors, contexts on and off GPUs",
    "samples": "CPU samples with their stacks",
    "sync": "CUDA synchronization",
    "mpi": "MPI calls",
    "ucx": "UCX calls",
    "libraries": "cuDNN, cuBLAS, OpenACC, OpenMP, graphics and video calls",
    "profiler": "messages and overhead of nsys",
    "memory": "GPU memory in use",
    "metrics": "GPU metrics",
    "counters": "performance counters of processors",
    "network": "metrics of network cards and switches",
    "other": "any other table with times",
}

ClockMode = Literal["collectives", "utc", "none"]
# Sources of the common clock of machines.
CLOCK_MODES: tuple[ClockMode, ...] = ("collectives", "utc", "none")

Split = Literal["auto", "none", "machine", "rank", "step"]
# Divisions of a run into several traces.
SPLITS: tuple[Split, ...] = ("auto", "none", "machine", "rank", "step")

# Largest number of events of a trace that Perfetto's UI opens with memory to spare. The importer of the UI
# (v52, WebAssembly, in Node) needs, at its peak:
#
# | detail | slices | file | memory |
# |---|---|---|---|
# | kernels | 1 million | 24 MB | 1.3 GiB |
# | kernels | 2 million | 48 MB | 2.1 GiB |
# | kernels | 5 million | 120 MB | 4.5 GiB |
# | ranges | 1 million | 31 MB | 1.7 GiB |
#
# So it is 0.45 GiB, and 0.86 KB a slice; 1.3 KB a range, because each has arguments of its own. Two million
# are 2.1 to 3 GiB of the 4 GiB of WebAssembly, and queries of the UI need memory too. Browsers that stop at
# 2 GiB hold a million.
MAX_EVENTS = 2_000_000

# Pipeline schedules.
SCHEDULES = ("gpipe", "1f1b", "interleaved", "zb-h1", "dualpipev")

# Groups of rows of a summary (`--by`), and their columns.
SUMMARY_GROUPS: Mapping[str, tuple[str, ...]] = {
    "run": (),
    "rank": ("rank",),
    "machine": ("machine",),
    "stage": ("stage",),
    "device": ("machine", "gpu"),
    "step": ("step",),
}

# Data types of peak rates of GPUs.
DATA_TYPES = ("bf16", "fp16", "tf32", "fp8", "fp4")

# Aspects in which compared runs may not differ unless `--allow-different` names them, and what helps.
ASPECTS: Mapping[str, str] = {
    "steps": "name the ranges that are steps with `--step-pattern`, so that both runs have them",
    "jobs": "name the ranges that are jobs with `--preset` or `--job-pattern`, so that both runs have them",
    "stages": "stages and ranks are then left out",
    "operations": "extract the parts of one run again, with the options of the other",
    "work": "times then differ for that reason, too",
}

OUTPUT = "Input and output"
SELECTION = "Selection"
PROJECTION = "Projection"
TRAINING = "Training"
RANKS = "Clocks and ranks"
BATCH = "Batch processing"
LOGGING = "Logging and help"
# Headings of `--help`, in order.
SECTIONS = (OUTPUT, SELECTION, PROJECTION, TRAINING, RANKS, BATCH, LOGGING)

_NS = {"ns": 1, "us": 1000, "ms": 1000**2, "s": 1000**3, "": 1}
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_SIZES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SIZES |= {f"{unit}ib": size for unit, size in _SIZES.items() if unit}
_SIZES |= {f"{unit}b": 1000**power for power, unit in enumerate("kmgt", start=1)}
_MOST_NS = 1 << 61  # 73 years; sums of two such times are below 2^63


def parse_duration(text: str) -> int:
    """Parse a time in ns: `1.5s`, `20ms`, `300us`, `4000ns`, `0`; others without a unit are ambiguous."""
    timed = "0ns" if text.strip() == "0" else text.strip()
    match = re.fullmatch(r"(-?)(\d{1,19})(?:\.(\d{1,19}))?\s*(ns|us|ms|s)", timed)
    if match is None:
        raise ValueError(f"invalid time {text!r}; expected e.g. `1.5s`, `20ms`, `300us` or `4000ns`")
    sign, whole, fraction, unit = match.groups("")
    size: int = int(whole) * _NS[unit] + int(fraction or 0) * _NS[unit] // 10 ** len(fraction)
    if size >= _MOST_NS:
        raise ValueError(f"invalid time {text!r}; expected less than 73 years")
    return -size if sign else size


def parse_window(text: str) -> tuple[int, int]:
    """Parse two times in ns, `1.5s:1.7s`; the second is later."""
    first, colon, last = text.partition(":")
    if not colon:
        raise ValueError(f"invalid range {text!r}; expected e.g. `1.5s:1.7s`")
    start, end = parse_duration(first), parse_duration(last)
    if end <= start:
        raise ValueError(f"invalid range {text!r}; the second time must be later")
    return start, end


def parse_timeout(text: str) -> float:
    """Parse a timeout in seconds: `90s`, `10m`, `1h`; seconds without a unit."""
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)\s*([smhd]?)", text.strip())
    if match is None:
        raise ValueError(f"invalid timeout {text!r}; expected e.g. `90s`, `10m` or `1h`")
    return float(match[1]) * _SECONDS[match[2]]


def parse_size(text: str) -> int:
    """Parse a size of memory in bytes: `8GB`, `512MiB`, `16G`."""
    match = re.fullmatch(r"(\d{1,18}(?:\.\d{1,18})?)\s*([a-z]*)", text.strip().lower())
    if match is None or match[2] not in _SIZES or not float(match[1]):
        raise ValueError(f"invalid memory size {text!r}; expected e.g. `8GB` or `512MiB`")
    return int(float(match[1]) * _SIZES[match[2]])


def parse_numbers(text: str) -> frozenset[int]:
    """Parse whole numbers separated by commas."""
    if not re.fullmatch(r"\d{1,9}(,\d{1,9})*", text.strip()):
        raise ValueError(f"invalid list of numbers {text!r}; expected e.g. `0,1`")
    return frozenset(map(int, text.strip().split(",")))


def parse_processes(text: str) -> int:
    """Parse a number of processes; `auto` is 0."""
    if text.strip() == "auto":
        return 0
    if not re.fullmatch(r"\d{1,4}", text.strip()):
        raise ValueError(f"invalid number of processes {text!r}; expected e.g. `4`, or `auto`")
    return int(text.strip())


def parse_offset(text: str) -> tuple[str, int]:
    """Parse a machine with the offset of its clock in ns: `node07=-1.2ms`."""
    machine, equals, offset = text.rpartition("=")
    if not (machine and equals and offset):
        raise ValueError(f"invalid offset {text!r}; expected e.g. `node07=-1.2ms`")
    return machine, parse_duration(offset.removeprefix("+"))


def parse_positive(text: str) -> float:
    """Parse a number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not value > 0:
        raise ValueError(f"invalid number {text!r}; expected one above 0")
    return value


class Option(NamedTuple):
    """An option; an argument where `flags` is empty.

    Commands may have defaults, choices and values of their own.
    """

    name: str  # keyword of the library, and of the function of a command
    flags: str
    section: str
    commands: str  # that have it, separated by spaces
    help: str
    type: Any = str  # str, int, bool (a flag), Path, or a function of a text that raises ValueError
    choices: Sequence[str] = ()
    limits: tuple[int | None, int | None] = (None, None)  # of a number
    default: Any = None
    default_text: str | None = None  # None: the default itself
    values: str = ""  # sentence on the values of one command
    metavar: str | None = None  # of an argument: there may be many
    is_many: bool = False  # repeatable
    is_optional: bool = False  # of an argument
    is_folder: bool | None = None  # of a path; None: a file or a folder
    variable: str | None = None  # of the environment, with another default
    is_forwarded: bool = False  # by the recipes of nsys


# Commands that have the same options.
_RUN = "start merge report pipeline whatif chart compare sql"
_JOBS = f"{_RUN} summary extract"
_STEPS = f"{_RUN} summary"
_CLOCKED = f"{_RUN} align"
_RANKED = f"{_RUN} summary info align"
_WAITING = "start merge report pipeline whatif chart summary project info check align sql extract"
_READING = f"{_WAITING} compare"
_PROJECTING = "merge summary project extract"
_LOGGING = f"{_READING} scrub"
_WRITING = "merge report pipeline whatif chart summary compare project sql extract scrub"
_JSON = "pipeline whatif summary compare project info check align sql"
_FORMATTED = f"{_JSON} merge chart"
_LIMITED = "pipeline summary compare project sql"
_DRAWING = "merge extract"

OPTIONS = (
    Option(
        "a",
        "",
        OUTPUT,
        "compare",
        "The run to compare with: a report, a part, a folder of them, or a quoted pattern, with its "
        "steps as in runs/7:10:14.",
    ),
    Option(
        "b",
        "",
        OUTPUT,
        "compare",
        "The run to judge, likewise; or other steps of the same run.",
    ),
    Option(
        "query",
        "",
        OUTPUT,
        "sql",
        "A query in SQL, in the dialect of polars.",
        is_optional=True,
    ),
    Option(
        "file",
        "",
        OUTPUT,
        "open",
        "Trace, chart or page.",
        type=Path,
    ),
    Option(
        "reports",
        "",
        OUTPUT,
        f"{_WAITING} scrub",
        "Exported reports, .nsys-rep files, parts, folders of these, or quoted patterns; - reads a list of "
        "them, one a line.",
        metavar="REPORT...",
    ),
    Option(
        "nsys",
        "--nsys",
        OUTPUT,
        f"{_LOGGING} install",
        "Path of the nsys that exports .nsys-rep files or receives recipes.",
        default_text="$NSYS_PP_NSYS, else the one on PATH",
        metavar="PATH",
        variable="NSYS_PP_NSYS",
    ),
    Option(
        "output",
        "-o --output",
        OUTPUT,
        _WRITING,
        "Output file or folder.",
        type=Path,
    ),
    Option(
        "format",
        "--format",
        OUTPUT,
        _FORMATTED,
        "Output format.",
    ),
    Option(
        "as_json",
        "--json",
        OUTPUT,
        _JSON,
        "Short form of --format json.",
        type=bool,
    ),
    Option(
        "force",
        "--force",
        OUTPUT,
        f"start {_WRITING} install",
        "Replace existing output files.",
        type=bool,
    ),
    Option(
        "title",
        "--title",
        OUTPUT,
        "report chart compare",
        "Title of the page.",
        default_text="name of the output file",
    ),
    Option(
        "is_opened",
        "--open/--no-open",
        OUTPUT,
        "start merge report chart",
        "Open what was written in the browser (`nsys-pp open`).",
        type=bool,
    ),
    Option(
        "split",
        "--split",
        OUTPUT,
        "merge",
        "Write an overview at detail jobs, and a folder of traces by machine, rank or step, with an "
        "index page. auto: by machine if one trace would have more than --max-events, by rank if a "
        "machine alone has more. none: one trace. step needs the reports.",
        choices=SPLITS,
        default="auto",
        is_forwarded=True,
    ),
    Option(
        "max_events",
        "--max-events",
        OUTPUT,
        "merge",
        "Largest number of events (slices, marks, samples of counters) of a trace, for --split auto; --split"
        " step groups steps by an estimate, to which --show adds.",
        type=int,
        limits=(1, None),
        default=MAX_EVENTS,
        metavar="N",
        is_forwarded=True,
    ),
    Option(
        "manifest",
        "--manifest",
        OUTPUT,
        "merge",
        "Also write NAME.manifest.json, by which Perfetto opens traces of other tools with this one.",
        type=bool,
        is_forwarded=True,
    ),
    Option(
        "trace",
        "--trace",
        OUTPUT,
        "report",
        "Trace of the run (nsys-pp merge), which the page opens at findings and steps: by commands of "
        "`nsys-pp open` for a file, by links for an address.",
        metavar="FILE|URL",
    ),
    Option(
        "steptask",
        "--steptask",
        OUTPUT,
        "pipeline",
        "Write copies of the reports to this folder, each with a table StepTaskInfo of its jobs, as in "
        "msprof-analyze and MindStudio Insight.",
        type=Path,
        metavar="FOLDER",
        is_folder=True,
    ),
    Option(
        "in_place",
        "--in-place",
        OUTPUT,
        "pipeline",
        "Add the table StepTaskInfo to the reports themselves.",
        type=bool,
    ),
    Option(
        "explain",
        "--explain",
        OUTPUT,
        "sql",
        "List the tables and columns of queries instead; with names of tables, theirs.",
        type=bool,
    ),
    Option(
        "verbose",
        "--verbose",
        OUTPUT,
        "info check",
        "Also list details: each of many reports, tables of facts, rows without an event.",
        type=bool,
    ),
    Option(
        "port",
        "--port",
        OUTPUT,
        "open",
        "Port on this machine.",
        type=int,
        limits=(1, 65535),
        default_text="a free one",
        metavar="N",
    ),
    Option(
        "browser",
        "--browser/--no-browser",
        OUTPUT,
        "open",
        "Start the browser, or print the address alone.",
        type=bool,
        default=True,
    ),
    Option(
        "keep",
        "--keep",
        OUTPUT,
        "open",
        "Serve until Ctrl-C, so that the page can be loaded again.",
        type=bool,
    ),
    Option(
        "to",
        "--to",
        OUTPUT,
        "install",
        "Copy the recipes to this folder, for NSYS_RECIPE_PATH; it is created if missing.",
        type=Path,
        metavar="FOLDER",
        is_folder=True,
    ),
    Option(
        "detail",
        "--detail",
        SELECTION,
        _DRAWING,
        "Level of detail. jobs: steps, jobs and messages (without jobs, the three outermost levels of "
        "ranges). ranges: also all ranges and communication. kernels: also all streams. cpu: also CPU "
        "threads.",
        choices=DETAILS,
        default_text="kernels",
        is_forwarded=True,
    ),
    Option(
        "flows",
        "--flows",
        SELECTION,
        _DRAWING,
        "Draw arrows from CUDA calls to the first operation of each launch; implies `--detail cpu`.",
        type=bool,
        is_forwarded=True,
    ),
    Option(
        "show",
        "--show",
        SELECTION,
        _DRAWING,
        "Kinds of data to draw in addition, at any detail: all or "
        + ", ".join(f"{kind} ({title})" for kind, title in SHOW_KINDS.items())
        + ".",
        default_text="none",
        metavar="KIND,...",
        is_forwarded=True,
    ),
    Option(
        "devices",
        "--device",
        SELECTION,
        "merge pipeline",
        "Include only these GPUs (index per machine, as in nvidia-smi); `pipeline`: with `--format paddle`"
        " alone.",
        type=parse_numbers,
        metavar="N,...",
        is_forwarded=True,
    ),
    Option(
        "start_ns",
        "--start",
        SELECTION,
        "merge",
        "Omit events that end before this time, e.g. 1.5s or 20ms after the start of the earliest report.",
        type=parse_duration,
        metavar="TIME",
    ),
    Option(
        "end_ns",
        "--end",
        SELECTION,
        "merge",
        "Omit events that begin after this time.",
        type=parse_duration,
        metavar="TIME",
    ),
    Option(
        "steps",
        "--steps",
        SELECTION,
        _STEPS,
        "Include only these steps: 10:12 is 10 and 11; 10: begins with 10; :12 ends before 12.",
        metavar="A:B",
        is_forwarded=True,
    ),
    Option(
        "steps_a",
        "--steps-a",
        SELECTION,
        "compare",
        "Steps of run A, for paths that end like steps; `--steps` applies to both runs.",
        metavar="A:B",
    ),
    Option(
        "steps_b",
        "--steps-b",
        SELECTION,
        "compare",
        "Steps of run B.",
        metavar="A:B",
    ),
    Option(
        "gates",
        "--fail-on",
        SELECTION,
        "compare",
        "Exit with status 4 if B is worse by more than this: 'bubble>5%', 'step>20ms', 'stage 2 "
        "forward>3%', 'bubble_b>20%' (of B itself). Repeatable.",
        is_many=True,
        metavar="GATE",
    ),
    Option(
        "allow_different",
        "--allow-different",
        SELECTION,
        "compare",
        "Compare runs that differ in this, although times depend on it, without the tables that it "
        "affects. Repeatable.",
        choices=(*ASPECTS,),
        is_many=True,
    ),
    Option(
        "names",
        "--table",
        SELECTION,
        "pipeline summary compare",
        "Tables to show or write.",
        metavar="NAME,...|all",
        is_forwarded=True,
    ),
    Option(
        "limit",
        "--limit",
        SELECTION,
        _LIMITED,
        "Maximum number of rows per table, or per group of a summary; 0: all rows.",
        type=int,
        limits=(0, None),
        metavar="N",
        default_text="10 in tables, 40 in a single one; all rows in other formats",
        is_forwarded=True,
    ),
    Option(
        "is_wide",
        "--wide",
        SELECTION,
        "pipeline summary compare project sql",
        "Show long names in full.",
        type=bool,
        is_forwarded=True,
    ),
    Option(
        "by",
        "--by",
        SELECTION,
        "summary",
        "Groups of rows; device: each GPU of each machine.",
        choices=(*SUMMARY_GROUPS,),
        default="run",
        is_forwarded=True,
    ),
    Option(
        "sort",
        "--sort",
        SELECTION,
        "summary",
        "Sort tables by this column: total, mean, median, max, min, count, name, bytes, or another, "
        "with `gpu_` or `host_` where there are two. Minima and names ascend. Paddle's names (CPUTotal,"
        " GPUMin) are accepted.",
        default_text="the order of each table",
        metavar="COLUMN",
        is_forwarded=True,
    ),
    Option(
        "unit",
        "--unit",
        SELECTION,
        "summary",
        "Unit of all times.",
        choices=("s", "ms", "us", "ns"),
        default_text="readable units in tables; ns in data files",
        is_forwarded=True,
    ),
    Option(
        "paddle_compat",
        "--paddle-compat",
        SELECTION,
        "summary",
        "Show the tables of Paddle's Profiler in its layout, and include the CPU time of communication,"
        " as there.",
        type=bool,
        is_forwarded=True,
    ),
    Option(
        "time_limit_s",
        "--time-limit",
        SELECTION,
        "check",
        "Time limit of SQLite's check of one file, e.g. 90s, 10m.",
        type=parse_timeout,
        limits=(0, None),
        default="60s",
        metavar="TIME",
    ),
    Option(
        "window_ns",
        "--zoom",
        SELECTION,
        "open",
        "Show this time, e.g. 1.5s:1.7s since the start of the run.",
        type=parse_window,
        metavar="TIME:TIME",
    ),
    Option(
        "expand",
        "--expand",
        SELECTION,
        "open",
        "Expand rows with such names, e.g. 'rank 6 '.",
        metavar="REGEX",
    ),
    Option(
        "pin",
        "--pin",
        SELECTION,
        "open",
        "Pin rows with such names to the top.",
        metavar="REGEX",
    ),
    Option(
        "queries",
        "--query",
        SELECTION,
        "open",
        "Show a table below the trace.",
        is_many=True,
    ),
    Option(
        "hosts",
        "--hosts",
        SELECTION,
        "scrub",
        "Replace host names, and ids of machines and GPUs, by pseudonyms.",
        type=bool,
    ),
    Option(
        "users",
        "--users",
        SELECTION,
        "scrub",
        "Replace user names by pseudonyms.",
        type=bool,
    ),
    Option(
        "paths",
        "--paths",
        SELECTION,
        "scrub",
        "Replace absolute paths by pseudonyms.",
        type=bool,
    ),
    Option(
        "keep_tables",
        "--keep-table",
        SELECTION,
        "scrub",
        "Copy another table as it is, unchecked; repeatable.",
        is_many=True,
        default_text="only tables that nsys-pp reads",
        metavar="NAME",
    ),
    Option(
        "ops",
        "--ops",
        PROJECTION,
        _PROJECTING,
        "GPU operations that ranges are projected onto; `all` with `--scope thread` matches "
        "nvtx_gpu_proj_trace.",
        default_text="kernel",
        metavar="kernel,memcpy,memset|all",
        is_forwarded=True,
    ),
    Option(
        "scope",
        "--scope",
        PROJECTION,
        _PROJECTING,
        "Launches that count for a range. thread: of its thread. process: of its process while it is "
        "open. auto: of its thread and of threads that it waits for.",
        choices=("thread", "process", "auto"),
        default_text="auto",
        is_forwarded=True,
    ),
    Option(
        "per_stream",
        "--per-stream",
        PROJECTION,
        "project",
        "One row per stream instead of one per device.",
        type=bool,
    ),
    Option(
        "preset",
        "--preset",
        TRAINING,
        _JOBS,
        "Naming rules: a built-in preset or a .toml file.",
        default_text="detected",
        metavar="NAME|FILE",
        is_forwarded=True,
    ),
    Option(
        "job_patterns",
        "--job-pattern",
        TRAINING,
        _JOBS,
        "Additional ranges that are jobs, with their kind, e.g. 'forward=fwd (?P<micro_batch>\\d+)'. "
        "Repeatable.",
        is_many=True,
        metavar="KIND=REGEX",
        is_forwarded=True,
    ),
    Option(
        "step_patterns",
        "--step-pattern",
        TRAINING,
        _JOBS,
        "Additional ranges that are steps; a group named `step` is the number, e.g. 'iter "
        "(?P<step>\\d+)'. Repeatable.",
        is_many=True,
        metavar="REGEX",
        is_forwarded=True,
    ),
    Option(
        "schedule",
        "--schedule",
        TRAINING,
        _RUN,
        "Pipeline schedule of the run; of `whatif`, that of the prediction.",
        choices=SCHEDULES,
        default_text="as recorded",
        is_forwarded=True,
    ),
    Option(
        "infer_jobs",
        "--infer-jobs",
        TRAINING,
        _RUN,
        "Infer jobs from the gaps between messages where no range is a job; inferred jobs are marked.",
        type=bool,
        is_forwarded=True,
    ),
    Option(
        "explain_jobs",
        "--explain-jobs",
        TRAINING,
        "pipeline",
        "Show the names of ranges instead: the rule that reads each as a job or a step, and unread "
        "names by GPU time.",
        type=bool,
    ),
    Option(
        "heal",
        "--heal",
        TRAINING,
        "whatif",
        "What shall take as long as on its peers, where it takes longer: rank=5, stage=3, "
        "'gpu=node2 GPU 0', machine=node2, host=6, link=2-4, data, lengths (of jobs), or all.",
        default_text="each that gains",
        is_many=True,
        metavar="WHAT",
    ),
    Option(
        "scale",
        "--scale",
        TRAINING,
        "whatif",
        "What shall take a factor of its time: stage=3:0.8, rank=5:0.9, host=6:0.5, link=2-4:0.5, "
        "link=all:0.5, communication:0.5, kind=backward:0.9.",
        is_many=True,
        metavar="WHAT:FACTOR",
    ),
    Option(
        "balance",
        "--balance",
        TRAINING,
        "whatif",
        "All stages shall have the same compute, as if layers were split evenly.",
        type=bool,
    ),
    Option(
        "recorded_schedule",
        "--recorded-schedule",
        TRAINING,
        "whatif",
        "Pipeline schedule of the recorded run.",
        choices=SCHEDULES,
        default_text="detected",
    ),
    Option(
        "micro_batches",
        "--micro-batches",
        TRAINING,
        "whatif",
        "Micro-batches of a step, each as large as the recorded ones.",
        type=int,
        limits=(1, None),
        default_text="as recorded",
    ),
    Option(
        "flops_per_step",
        "--flops-per-step",
        TRAINING,
        "pipeline",
        "FLOPs of the model in one step, over all GPUs. Adds a table of model FLOPs utilisation.",
        type=parse_positive,
        metavar="N",
        is_forwarded=True,
    ),
    Option(
        "model",
        "--model",
        TRAINING,
        "pipeline",
        "Shape of a transformer and batch of a step over all ranks, for its FLOPs: layers, hidden, "
        "sequence, batch; also vocabulary, feed_forward, gated=1, heads, kv_heads. Adds a table of "
        "model FLOPs utilisation.",
        metavar="KEY=N,...",
        is_forwarded=True,
    ),
    Option(
        "data_type",
        "--data-type",
        TRAINING,
        "pipeline",
        "Data type of the peak of GPUs, for `--flops-per-step` and `--model`.",
        choices=DATA_TYPES,
        default="bf16",
        is_forwarded=True,
    ),
    Option(
        "clock",
        "--clock",
        RANKS,
        _CLOCKED,
        "Clock alignment. collectives: recorded UTC, refined by collectives shared between ranks. utc: "
        "as recorded. none: all sessions begin at the same time.",
        choices=CLOCK_MODES,
        default="collectives",
        is_forwarded=True,
    ),
    Option(
        "offsets",
        "--offset",
        RANKS,
        _CLOCKED,
        "Override a machine's clock offset to UTC, e.g. node07=-1.2ms. Repeatable.",
        type=parse_offset,
        is_many=True,
        metavar="MACHINE=TIME",
        is_forwarded=True,
    ),
    Option(
        "layout",
        "--layout",
        RANKS,
        _RANKED,
        "Parallel layout of the ranks: sizes of pp, tp, dp (also cp, ep), and their order, fastest-"
        "changing first (tp-cp-ep-dp-pp if omitted).",
        metavar="pp=4,tp=2,dp=2[,order=tp-dp-pp]",
        is_forwarded=True,
    ),
    Option(
        "rank_from",
        "--rank-from",
        RANKS,
        _RANKED,
        "Rank in the file name: the first group of this regular expression, e.g. 'node(\\d+)'. Used for "
        "reports that do not contain their rank.",
        metavar="REGEX",
        is_forwarded=True,
    ),
    Option(
        "processes",
        "--processes",
        BATCH,
        _READING,
        "Process up to N reports in parallel; auto (or 0): as many as cores and free memory allow.",
        type=parse_processes,
        limits=(0, None),
        default_text="1 (runs in the main process)",
        metavar="N|auto",
    ),
    Option(
        "memory_bytes",
        "--memory",
        BATCH,
        _READING,
        "Memory limit of all processes together, e.g. 8GB: limits their number, and ends the largest "
        "beyond it. With --dask-scheduler: of each worker.",
        type=parse_size,
        limits=(1, None),
        metavar="SIZE",
    ),
    Option(
        "report_timeout_s",
        "--timeout-per-report",
        BATCH,
        _READING,
        "Time limit of each report, e.g. 10m; with --keep-going, reports beyond it are skipped.",
        type=parse_timeout,
        limits=(0, None),
        metavar="TIME",
    ),
    Option(
        "dask_scheduler",
        "--dask-scheduler",
        BATCH,
        _READING,
        "Process reports on a Dask cluster: the scheduler's address or its --scheduler-file. Workers "
        "need the same version of nsys-pp and the same file paths.",
        metavar="ADDRESS|FILE",
    ),
    Option(
        "wait_for",
        "--wait-for",
        BATCH,
        _WAITING,
        "Wait until N complete reports or parts exist. Folders and quoted patterns are searched repeatedly.",
        type=int,
        limits=(1, None),
        metavar="N",
    ),
    Option(
        "wait_timeout_s",
        "--wait-timeout",
        BATCH,
        _WAITING,
        "Time limit of --wait-for, e.g. 90s, 10m, 1h. With --keep-going, continue with the complete inputs.",
        type=parse_timeout,
        limits=(0, None),
        default="1h",
        metavar="TIME",
    ),
    Option(
        "keep_going",
        "--keep-going",
        BATCH,
        _READING,
        "Skip inputs that cannot be processed or do not exist, list them, and exit with status 3.",
        type=bool,
        is_forwarded=True,
    ),
    Option(
        "log_format",
        "--log-format",
        LOGGING,
        _LOGGING,
        "Format of the lines on stderr; json: one object per line.",
        choices=("text", "json"),
        default="text",
    ),
    Option(
        "result",
        "--result",
        LOGGING,
        _LOGGING,
        "Write exit status, inputs, outputs, skipped inputs, notes, counts of rows and timings to this "
        "file, which is new, empty, or of an earlier `--result`.",
        type=Path,
        metavar="FILE.json",
        is_folder=False,
    ),
    Option(
        "explain_rows",
        "--explain-rows",
        LOGGING,
        _LOGGING,
        "List on stderr how many rows of each table of each report were used, and left out for which reason.",
        type=bool,
    ),
    Option(
        "debug",
        "--debug",
        LOGGING,
        _LOGGING,
        "Show the traceback of an unforeseen error.",
        type=bool,
    ),
)
