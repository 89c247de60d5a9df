"""Command line: `python -m tests.worlds --count 100 --seed 1` scores random worlds, `... search` looks for worse ones."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random

from tests.worlds.draw import draw_options, perturb, repair, to_arguments
from tests.worlds.tables import append_score, build_tables, list_breaks, read_scores, write_tables
from tests.worlds.world import QUESTIONS, WorldScore, map_seeds, run_seed, run_world

_RESTART = 25  # tries without progress


def search(seed: int, *, count: int, metric: str) -> WorldScore | None:
    """Search with some tries and print each world that is worse than all before; return the worst one."""
    random = Random(f"search {seed}")
    measure, only = METRICS[metric]
    world, level = draw_options(seed), -1.0
    worst, worst_level, idle = None, -1.0, 0
    for number in range(count):
        candidate = world if number == 0 else perturb(world, random)
        score = run_world(seed, to_arguments(repair(candidate)), only)
        found = measure(score)
        idle += 1
        if found >= level:  # also sideways, so that plateaus are left
            idle = 0 if found > level else idle
            world, level = candidate, found
        if found > worst_level:
            worst, worst_level = score, found
            print(
                f"try {number}: {metric} {found:.3g}; {'; '.join(text for _, text in list_breaks(score))}\n    {score.command}",
                flush=True,
            )
        if idle > _RESTART:
            world, level, idle = draw_options(random.randrange(1 << 30)), -1.0, 0
    return worst


def _measure_clocks(score: WorldScore) -> float:
    """Return the largest error over its bound."""
    return max(score.clocks.factors) if score.clocks is not None else 0.0


def _measure_groups(score: WorldScore) -> float:
    """Return the number of groups that truth does not have."""
    return score.clocks.groups - score.clocks.true_groups if score.clocks is not None else 0.0


def _measure_pairs(score: WorldScore) -> float:
    """Return the largest share of wrong pairs, where clocks are right."""
    pairs = score.pairs.values() if score.has_right_clocks else ()
    return max((part.wrong / max(part.messages, 1) for part in pairs), default=0.0)


def _measure_causes(score: WorldScore) -> float:
    """Return the largest error of a cause in points, where clocks are right."""
    if not score.has_right_clocks or score.causes is None:
        return 0.0
    return max((step.worst[0] for step in score.causes.steps if step.is_whole), default=0.0)


METRICS: dict[str, tuple[Callable[[WorldScore], float], tuple[str, ...]]] = {
    "clocks": (_measure_clocks, ("clocks",)),
    "groups": (_measure_groups, ("clocks",)),
    "pairs": (_measure_pairs, ("pairs",)),
    "causes": (_measure_causes, ("causes",)),
}


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
    missing = [seed for seed in seeds if seed not in scores]
    for score in map_seeds(partial(run_seed, only=tuple(only)), missing, chosen.processes):
        scores[score.seed] = score
        append_score(chosen.save, score)
        if not chosen.quiet:
            _print_breaks(score)
    return [scores[seed] for seed in seeds]


def _print_breaks(score: WorldScore) -> None:
    if found := list_breaks(score):
        print(f"seed {score.seed}: {'; '.join(text for _, text in found)}\n    {score.command}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
