"""Search for worlds that break something: worlds near the worst one so far, drawn again in some options."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.worlds.draw import draw_options, perturb, repair, to_arguments
from tests.worlds.tables import list_breaks
from tests.worlds.world import WorldScore, run_world

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
    if not score.has_right_clocks:
        return 0.0
    return max((part.wrong / max(part.messages, 1) for part in score.pairs.values()), default=0.0)


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
