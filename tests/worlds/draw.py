"""Random worlds: options of the simulator, drawn from wide ranges and in odd combinations.

Every option has a function that draws its value, with random numbers of its own: an option that is added later leaves
the other options of a seed as they are. `repair` then changes what the simulator cannot run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import count as counting
from itertools import islice
from random import Random
from typing import TypeAlias

from fixtures.program.vocabulary import VOCABULARIES

Value: TypeAlias = "int | float | str | bool | None"
World: TypeAlias = dict[str, Value]
"""Options by name, without dashes before it; True: a flag; False and None: absent."""

MOST_RANKS = 16
MOST_KERNELS = 14_000  # of all ranks: simulated, written and analysed in about two seconds
_SMALL_KERNELS, _SMALL_RANKS = 3_500, 6
_KERNELS_OF_LAYER = 27
_LAYER_NS = 6_000_000  # forward and backward
_NS_PER_MS = 1_000_000
_SCHEMAS = ("3.0.0", "3.7.2", "3.7.2", "3.25.0", "3.25.0", "3.28.1")
_WITH_PAYLOADS = ("3.25.0", "3.28.1")
_CHUNKS = {"interleaved": 2, "dualpipev": 2}


def draw_world(seed: int) -> list[str]:
    """Return the arguments of `python -m fixtures.simulate`, without the output folder, for one random world."""
    return to_arguments(repair(draw_options(seed)))


def draw_options(seed: int) -> World:
    """Draw the options of one random world, before `repair`."""
    drawn = {name: draw(Random(f"{seed} {name}")) for name, draw in DRAWS.items()}
    return {"seed": seed, "brief-truth": True, **drawn}


def draw_small_seeds(count: int) -> list[int]:
    """Return the first seeds of small worlds, of a second or two each."""
    return list(islice((seed for seed in counting(1) if _is_small(repair(draw_options(seed)))), count))


def perturb(world: World, random: Random) -> World:
    """Draw some options of a world again, before `repair`."""
    changed = dict(world)
    for name in random.sample(sorted(DRAWS), random.choice([1, 1, 2, 3])):
        changed[name] = DRAWS[name](random)
    if random.random() < 0.5:
        changed["seed"] = random.randrange(1 << 20)
    return changed


def to_arguments(world: Mapping[str, Value]) -> list[str]:
    words: list[str] = []
    for name, value in world.items():
        if value is True:
            words.append(f"--{name}")
        elif value not in (None, False, ""):
            words += [f"--{name}", str(value)]
    return words


def layout_of(world: Mapping[str, Value]) -> str:
    """Return the layout of a world, as `--layout`."""
    sizes = ",".join(f"{axis}={world[axis]}" for axis in ("pp", "dp", "tp"))
    return f"{sizes},order={world['order'] or 'tp-dp-pp'}"


def _one_of(*values: Value) -> Callable[[Random], Value]:
    return lambda random: random.choice(values)


def _flag(chance: float) -> Callable[[Random], Value]:
    return lambda random: random.random() < chance


def _log_uniform(random: Random, least: float, most: float) -> float:
    return float(f"{math.exp(random.uniform(math.log(least), math.log(most))):.3g}")


def _offsets_ms(random: Random) -> Value:
    """Draw none, some milliseconds as NTP leaves them, or anything up to a second."""
    kind = random.random()
    if kind < 0.1:
        return None
    return _log_uniform(random, 0.1, 10) if kind < 0.6 else _log_uniform(random, 0.001, 1_000)


def _seldom(chance: float, draw: Callable[[Random], Value]) -> Callable[[Random], Value]:
    return lambda random: draw(random) if random.random() < chance else None


# A part of [0, 1) stands for a choice that depends on other options: `repair` makes it.
DRAWS: dict[str, Callable[[Random], Value]] = {
    "pp": _one_of(1, 2, 2, 2, 3, 3, 4, 4, 4, 5, 6, 8),
    "dp": _one_of(1, 1, 1, 1, 2, 2, 2, 3, 4),
    "tp": _one_of(1, 1, 1, 1, 1, 1, 2, 2, 3, 4),
    "order": _one_of(None, None, None, None, "tp-dp-pp", "pp-dp-tp", "dp-tp-pp", "tp-pp-dp"),
    "steps": _one_of(1, 2, 2, 3, 3, 3, 4, 5, 6, 8, 10),
    "micro-batches": lambda random: random.randint(1, 16),
    "layers": _one_of(1, 1, 2),
    "schedule": _one_of("1f1b", "1f1b", "1f1b", "gpipe", "interleaved", "zb-h1", "dualpipev"),
    "chunks": _one_of(None, None, 2, 3),
    "names": _one_of(
        *(name for name, names in VOCABULARIES.items() if not names.is_stock),  # without ranges of jobs
        *("plain", "megatron", "megatron", "torch"),
    ),
    "autograd": _one_of("all", "fill", "fill", "part", "none"),
    "free-running": _flag(0.4),
    "recompute": _flag(0.12),
    "graphs": _seldom(0.12, _one_of("node", "graph")),
    "host": _flag(0.1),
    "sequence-parallel": _flag(0.3),
    "sharded-optimizer": _flag(0.3),
    "grouped-messages": _flag(0.2),
    "message-streams": _one_of(None, None, "peer", "one"),
    "init-communicators": _flag(0.3),
    "message-bytes": _seldom(0.5, lambda random: int(_log_uniform(random, 65_536, 134_217_728))),
    "buffered-bytes": _seldom(0.25, lambda random: 200_000_000),
    "skew-us": lambda random: _log_uniform(random, 0.5, 30),
    "stage-costs": lambda random: random.random() if random.random() < 0.3 else None,
    "jitter": lambda random: _log_uniform(random, 0.0005, 0.1),
    "slow-rank": lambda random: f"{random.random()}={_log_uniform(random, 1.02, 2)}" if random.random() < 0.15 else None,
    "slow-link": lambda random: f"{random.random()}={_log_uniform(random, 1.2, 8)}" if random.random() < 0.15 else None,
    "stall": lambda random: f"{random.random()}={_log_uniform(random, 1, 60)}" if random.random() < 0.12 else None,
    "host-bound": lambda random: f"{random.random()}={_log_uniform(random, 2, 30)}" if random.random() < 0.12 else None,
    "pace-us": _seldom(0.4, lambda random: _log_uniform(random, 3, 120)),
    "small-ops": _one_of(None, None, 1, 2, 3),
    "lead-collectives": _one_of(None, None, None, 1, 2),
    "zero-grad": _one_of(None, "end", "none", "none"),
    "events": _one_of(None, "waits", "all", "all"),
    "sync": _one_of(None, None, "event", "device"),
    "varied-hosts": _flag(0.5),
    "buckets": _seldom(0.3, lambda random: random.randint(1, 12)),
    "no-norm": _flag(0.2),
    "lag-steps": _seldom(0.2, _one_of(1, 2)),
    "vary-micro-batches": _seldom(0.12, lambda random: round(random.uniform(0.1, 0.7), 2)),
    "vary-lengths": _seldom(0.2, lambda random: round(random.uniform(0.01, 0.6), 2)),
    "evaluation-every": _seldom(0.12, _one_of(1, 2, 3)),
    "checkpoint-every": _seldom(0.12, _one_of(1, 2, 3)),
    "offload": _flag(0.12),
    "batch-us": _seldom(0.15, lambda random: _log_uniform(random, 50, 20_000)),
    "pauses": _seldom(0.2, lambda random: f"{round(random.uniform(0.01, 0.3), 2)}={_log_uniform(random, 0.5, 20)}"),
    "loads": _seldom(0.15, lambda random: f"{round(random.uniform(0.05, 1), 2)}={_log_uniform(random, 0.5, 20)}"),
    "loader-kernels": _flag(0.12),
    "unnamed-weights": _flag(0.3),
    "machine-factors": lambda random: random.random() if random.random() < 0.12 else None,
    "machine-ranks": lambda random: random.random() if random.random() < 0.25 else None,
    "congestion": lambda random: f"{random.random()}={_log_uniform(random, 1.5, 10)}" if random.random() < 0.12 else None,
    "restart-after": lambda random: random.random() if random.random() < 0.15 else None,
    "experts": _flag(0.12),
    "ring": _flag(0.12),
    "capture-steps": lambda random: random.random() if random.random() < 0.2 else None,
    "machines": lambda random: random.random(),
    "gpus": _seldom(0.3, _one_of(1, 2, 4, 8, 16)),
    "per": _one_of(None, None, None, None, None, "machine"),
    "visible": _seldom(0.2, _one_of("recorded", "hidden")),
    "containers": _flag(0.1),
    "hardware-ids": _flag(0.2),
    "launcher": _seldom(0.4, _one_of("torchrun", "slurm", "ompi", "paddle", "pmi", "pmix", "none")),
    "mpi": _flag(0.08),
    "nccl-payload": _flag(0.4),
    "folders": _seldom(0.3, _one_of("machine", "hostname")),
    "missing-ranks": lambda random: random.random() if random.random() < 0.12 else None,
    "window-ms": lambda random: random.random() if random.random() < 0.3 else None,
    "offsets-ms": _offsets_ms,
    "drift-ppm": _seldom(0.8, lambda random: f"random:{round(random.uniform(0, 100), 1)}"),
    "utc-error-us": _seldom(0.8, lambda random: _log_uniform(random, 1, 500)),
    "slew-ppm": _seldom(0.15, lambda random: _log_uniform(random, 1, 500)),
    "warming-ppm": _seldom(0.15, lambda random: _log_uniform(random, 0.1, 20)),
    "utc-step-us": _seldom(0.1, lambda random: _log_uniform(random, 10, 20_000)),
    "schema": _one_of(*_SCHEMAS),
}  # fmt: skip


def repair(world: World) -> World:
    """Return a world that the simulator can run: as drawn, with parts of [0, 1) resolved."""
    world = dict(world)
    _repair_shape(world)
    _repair_length(world)
    pp, ranks = _whole(world, "pp"), _ranks(world)
    if isinstance(world["stage-costs"], float):
        costs = Random(f"{world['seed']} {world['stage-costs']}")
        world["stage-costs"] = ",".join(str(round(costs.uniform(0.7, 1.5), 2)) for _ in range(pp))
    _choose(world, "slow-rank", ranks)
    _choose_link(world)
    if world["names"] == "paddle":  # Paddle has no range for the wait for data
        world["stall"] = world["loads"] = None
    for name in ("stall", "host-bound"):
        _choose(world, name, _whole(world, "steps"), first=10)
    _choose_machines(world)
    _choose_steps(world)
    _choose_congestion(world)
    if isinstance(world["machine-factors"], float):
        factors = Random(f"{world['seed']} {world['machine-factors']}")
        count = _whole(world, "machines")
        world["machine-factors"] = ",".join(str(round(factors.uniform(0.7, 1.6), 2)) for _ in range(count))
    if isinstance(world["missing-ranks"], float):
        world["missing-ranks"] = str(int(world["missing-ranks"] * ranks)) if ranks > 2 else None
    if world["schema"] not in _WITH_PAYLOADS:
        world["nccl-payload"] = False
        world["graphs"] = "node" if world["graphs"] else None
    if isinstance(world["window-ms"], float):
        world["window-ms"] = round(max(1.0, world["window-ms"] * 0.45 * _duration_ns(world) / _NS_PER_MS), 1)
    return world


def _repair_shape(world: World) -> None:
    """Reduce the number of ranks."""
    while _ranks(world) > MOST_RANKS:
        largest = max(("dp", "tp"), key=lambda name: _whole(world, name))
        world[largest] = max(1, _whole(world, largest) - 1)


def _repair_length(world: World) -> None:
    """Reduce the number of kernels; DualPipeV has a least number of micro-batches."""
    pp = _whole(world, "pp")
    if world["schedule"] == "dualpipev":
        world["micro-batches"] = max(2 * pp, _whole(world, "micro-batches"))
    while _count_kernels(world) > MOST_KERNELS:
        if _whole(world, "layers") > 1:
            world["layers"] = 1
        elif _whole(world, "steps") > 3 or world["schedule"] == "dualpipev":
            world["steps"] = max(1, _whole(world, "steps") - 1)
        elif _whole(world, "micro-batches") > 2:
            world["micro-batches"] = _whole(world, "micro-batches") - 1
        else:
            return
        if _whole(world, "steps") == 1:
            return


def _choose(world: World, name: str, count: int, *, first: int = 0) -> None:
    """Replace a part of [0, 1) before the `=` by a number."""
    target, equals, amount = str(world[name]).partition("=")
    if equals:
        world[name] = f"{first + int(float(target) * count)}={amount}"


def _choose_link(world: World) -> None:
    """Choose a stage whose messages to the next one are slow, or those back."""
    target, equals, amount = str(world["slow-link"]).partition("=")
    if not equals:
        return
    pp, order = _whole(world, "pp"), str(world["order"] or "tp-dp-pp").split("-")
    sizes = {name: _whole(world, name) for name in ("pp", "dp", "tp")}
    stride = math.prod(sizes[name] for name in order[: order.index("pp")])
    stage = int(float(target) * max(pp - 1, 1))
    sender, receiver = stage * stride, (stage + 1) * stride
    if float(target) * 1000 % 1 < 0.5:
        sender, receiver = receiver, sender
    world["slow-link"] = f"{sender},{receiver}={amount}" if pp > 1 else None


def _choose_machines(world: World) -> None:
    ranks, part, uneven = _ranks(world), world["machines"], world["machine-ranks"]
    assert isinstance(part, float)
    numbers = [number for number in range(1, 9) if ranks % number == 0]
    if uneven is None:
        world["machines"] = numbers[int(part * len(numbers))]
        return
    count = 1 + int(part * min(8, ranks))
    edges = sorted(Random(f"{world['seed']} {uneven}").sample(range(1, ranks), count - 1))
    sizes = [end - begin for begin, end in zip([0, *edges], [*edges, ranks], strict=True)]
    world["machines"], world["machine-ranks"] = count, ",".join(map(str, sizes))


def _choose_steps(world: World) -> None:
    """Choose the step of a restart, and the captured steps, which replace a window."""
    steps = _whole(world, "steps")
    if isinstance(world["restart-after"], float):
        world["restart-after"] = 2 + int(world["restart-after"] * (steps - 3)) if steps > 3 else None
    if isinstance(world["capture-steps"], float):
        first, last = sorted(Random(f"{world['seed']} {world['capture-steps']}").choices(range(steps), k=2))
        world["capture-steps"] = f"{10 + first}:{10 + last}"
        world["window-ms"] = None


def _choose_congestion(world: World) -> None:
    """Choose the steps of a congestion: from some step on, for half of the steps or more."""
    target, equals, amount = str(world["congestion"]).partition("=")
    if equals:
        steps = _whole(world, "steps")
        first = int(float(target) * steps)
        world["congestion"] = f"{10 + first}:{10 + first + 1 + steps // 2}={amount}"


def _is_small(world: World) -> bool:
    return _count_kernels(world) <= _SMALL_KERNELS and _ranks(world) <= _SMALL_RANKS


def _ranks(world: World) -> int:
    return _whole(world, "pp") * _whole(world, "dp") * _whole(world, "tp")


def _chunks(world: World) -> int:
    schedule = str(world["schedule"])
    return int(world["chunks"] or 2) if schedule == "interleaved" else _CHUNKS.get(schedule, 1)


def _count_kernels(world: World) -> int:
    jobs = _whole(world, "micro-batches") * _chunks(world) * _whole(world, "layers")
    return _ranks(world) * _whole(world, "steps") * jobs * _KERNELS_OF_LAYER


def _duration_ns(world: World) -> int:
    """Return about the shortest duration of the run."""
    jobs = _whole(world, "micro-batches") + _whole(world, "pp") - 1
    return _whole(world, "steps") * jobs * _chunks(world) * _whole(world, "layers") * _LAYER_NS * 6 // 10


def _whole(world: World, name: str) -> int:
    value = world[name]
    assert isinstance(value, int)
    return value
