"""Command line: `python -m tests.worlds --count 100 --seed 1` scores random worlds, `... search` looks for worse ones."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from tests.worlds.search import METRICS, search
from tests.worlds.tables import append_score, build_tables, list_breaks, read_scores, write_tables
from tests.worlds.world import QUESTIONS, WorldScore, run_seed, run_world


def main(arguments: Sequence[str] | None = None) -> int:
    """Run worlds and print their tables, or search."""
    parser = argparse.ArgumentParser(prog="python -m tests.worlds", description=__doc__)
    parser.add_argument("action", nargs="?", choices=["score", "search"], default="score")
    parser.add_argument(
        "--count", type=int, default=100, help="Number of worlds, or tries of a search. Default: 100."
    )
    parser.add_argument("--seed", type=int, default=1, help="First seed. Default: 1.")
    parser.add_argument("--processes", type=int, default=1, help="Worlds at a time. Default: 1.")
    parser.add_argument(
        "--only", default=",".join(QUESTIONS), help=f"Any of {', '.join(QUESTIONS)}. Default: all."
    )
    parser.add_argument(
        "--metric", choices=sorted(METRICS), default="clocks", help="Search for. Default: clocks."
    )
    parser.add_argument(
        "--arguments", help="Score this world: arguments of the simulator without the folder."
    )
    parser.add_argument(
        "--save", type=Path, help="File to which scores are added; its seeds are not run again."
    )
    parser.add_argument("--write", type=Path, help="Markdown file whose tables are replaced.")
    parser.add_argument("--quiet", action="store_true", help="Print no lines of single worlds.")
    chosen = parser.parse_args(arguments)
    only = chosen.only.split(",")
    if unknown := set(only) - set(QUESTIONS):
        parser.error(f"invalid --only {', '.join(sorted(unknown))}; expected {', '.join(QUESTIONS)}")
    if chosen.action == "search":
        search(chosen.seed, count=chosen.count, metric=chosen.metric)
        return 0
    if chosen.arguments is not None:
        scores = [run_world(chosen.seed, chosen.arguments.split(), only)]
        _print_breaks(scores[0])
    else:
        scores = _run_all(chosen, only)
    tables = build_tables(scores)
    print("\n\n".join(map(str, tables)))
    if chosen.write is not None:
        write_tables(chosen.write, "worlds", tables)
    return 0


def _run_all(chosen: argparse.Namespace, only: Sequence[str]) -> list[WorldScore]:
    """Run the worlds that are not saved yet; return the scores of all, by seed."""
    seeds = range(chosen.seed, chosen.seed + chosen.count)
    scores = {score.seed: score for score in read_scores(chosen.save) if score.seed in seeds}
    for score in _run([seed for seed in seeds if seed not in scores], only, chosen.processes):
        scores[score.seed] = score
        append_score(chosen.save, score)
        if not chosen.quiet:
            _print_breaks(score)
    return [scores[seed] for seed in seeds]


def _print_breaks(score: WorldScore) -> None:
    if found := list_breaks(score):
        print(f"seed {score.seed}: {'; '.join(text for _, text in found)}\n    {score.command}", flush=True)


def _run(seeds: Sequence[int], only: Sequence[str], processes: int) -> Iterator[WorldScore]:
    """Score the worlds of some seeds, in order."""
    score = partial(run_seed, only=tuple(only))
    if processes == 1:
        yield from map(score, seeds)
        return
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=spawn) as pool:
        yield from pool.map(score, seeds)


if __name__ == "__main__":
    sys.exit(main())
