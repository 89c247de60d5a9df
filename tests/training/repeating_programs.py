"""Random programs that repeat: sequences of launches with known iterations, or with none.

Names are of this program, except those of copies, collectives and optimizers, which are sometimes those of
real libraries."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import numpy as np
import numpy.typing as npt

Names = list[str]
MILLISECOND = 1_000_000


@dataclass
class Program:
    """Launches of one device, in order, with the truth.

    `begins` are positions of the first launch of each whole iteration of the host's loop, then the end of the
    last one.
    """

    kind: str
    names: Names = field(default_factory=list)
    pauses: list[int] = field(default_factory=list)  # of the host before each launch
    busy: list[int] = field(default_factory=list)
    begins: list[int] = field(default_factory=list)
    period: float = 0  # launches from one iteration to the next

    @property
    def iteration_count(self) -> int:
        """Number of whole iterations."""
        return max(len(self.begins) - 1, 0)

    def launch_times(self) -> npt.NDArray[np.int64]:
        """Compute the time of each launch."""
        return np.cumsum(np.array(self.pauses, dtype=np.int64))

    def keep(self, first: int, last: int) -> None:
        """Keep the launches of [first, last)."""
        self.names, self.pauses, self.busy = (
            self.names[first:last],
            self.pauses[first:last],
            self.busy[first:last],
        )
        self.begins = [begin - first for begin in self.begins if first <= begin <= last]


class _Host:
    """Host that launches the kernels of a program; some are left out or added."""

    def __init__(self, program: Program, random: Random, noise: float) -> None:
        self.program, self.random, self.noise = program, random, noise
        self.lengths: dict[str, int] = {}
        self.pause = 0

    def launch(self, names: Names) -> None:
        for name in names:
            if self.noise and self.random.random() < self.noise:
                if self.random.random() < 0.5:
                    continue
                self._append(f"odd_{self.random.randrange(4)}")
            self._append(name)

    def wait(self, nanoseconds: float) -> None:
        self.pause += int(nanoseconds * self.random.uniform(0.6, 1.6))

    def _append(self, name: str) -> None:
        if name not in self.lengths:
            self.lengths[name] = int(2_000 * 2 ** self.random.uniform(0, 7))
        self.program.names.append(name)
        self.program.pauses.append(int(self.random.uniform(3_000, 9_000)) + self.pause)
        self.program.busy.append(int(self.lengths[name] * self.random.uniform(0.9, 1.1)))
        self.pause = 0


def draw_program(seed: int) -> Program:
    """Draw a random program: a training, a serving run, or one without iterations that could be found."""
    random = Random(f"program {seed}")
    draw = random.choices(
        [_draw_training, _draw_serving, _draw_layers, _draw_noise, _draw_solver], [10, 5, 2, 2, 2]
    )[0]
    return draw(random)


def _block(random: Random, prefix: str, least: int, most: int, shared: Names) -> Names:
    """Draw the kernels of a block: some of its own, some of names that all blocks share."""
    size = random.randint(least, most)
    own = [f"{prefix}_{number}" for number in range(max(1, size // 2))]
    return [random.choice(shared) if random.random() < 0.45 else random.choice(own) for _ in range(size)]


def _draw_training(random: Random) -> Program:
    """Draw a training: embedding, layers, loss, backward layers, optimizer.

    Perhaps micro-batches and evaluations.
    """
    program = Program("training")
    host = _Host(program, random, random.choice([0, 0, 0, 0.0005, 0.003]))
    shared = [f"elementwise_{number}" for number in range(random.randint(1, 4))]
    layers, micro_batches = random.choice([1, 2, 4, 6, 12, 24]), random.choice([1, 1, 1, 2, 4, 8])
    embed = _block(random, "embed", 1, 4, shared)
    layer = _block(random, "layer", 4, 14, shared)
    loss = _block(random, "loss", 2, 6, shared)
    back = _block(random, random.choice(["back", "layer_bwd"]), 5, 20, shared)
    own_names = [["multi_tensor_apply_kernel"], ["FusedAdamKernel"], ["update_0", "update_1"], shared, shared]
    update_names = random.choice(own_names)
    update = [random.choice(update_names) for _ in range(random.choice([1, 2, 6, 20, 60]))]
    update = random.choice([[], ["norm_0", "norm_1"], [shared[0]] * 5]) + update
    update = random.choice([[], ["ncclDevKernel_AllReduce"]]) + update
    batch = random.choice([[], ["Memcpy HtoD"], ["Memcpy HtoD"] * 2])
    log = random.choice([[], ["Memcpy DtoH"], ["reduce_log", "Memcpy DtoH"]])
    log_every = random.choice([1, 1, 3, 5, 10])
    evaluate_every = random.choice([0, 0, 0, 4, 10])
    is_recomputed = random.random() < 0.2
    steps = random.choice([1, 2, 3, 4, 6, 12, 25, 40])
    load_ns, sync_ns = random.choice([0, 40_000, 2_000_000]), random.choice([0, 60_000, 3_000_000])
    if random.random() < 0.4:
        _initialise(host)
    before = len(program.names)
    for step in range(steps):
        program.begins.append(len(program.names))
        for _ in range(micro_batches):
            host.wait(load_ns)
            host.launch(batch + embed)
            for _ in range(layers):
                host.launch(layer)
            host.launch(loss)
            for _ in range(layers):
                host.launch([*layer, *back] if is_recomputed else back)
            host.launch([f"{name}_back" if name.startswith("embed") else name for name in embed])
        host.launch(update)
        if step % log_every == log_every - 1:
            host.launch(log)
            host.wait(sync_ns)
        program.period = (len(program.names) - program.begins[-1]) or 1
        if step == steps - 1:
            program.begins.append(len(program.names))
        if evaluate_every and step % evaluate_every == evaluate_every - 1:
            for _ in range(random.randint(1, 4)):
                host.wait(load_ns)
                host.launch(batch + embed)
                for _ in range(layers):
                    host.launch(layer)
                host.launch(["metric_0", "metric_1"])
    _cut_capture(program, random, before)
    return program


def _draw_serving(random: Random) -> Program:
    """Draw a serving run: decodes replay a graph or launch layers, prefills launch layers.

    Then kernels sample.
    """
    program = Program("serving")
    host = _Host(program, random, random.choice([0, 0, 0, 0.001]))
    shared = [f"elementwise_{number}" for number in range(random.randint(1, 3))]
    layers = random.choice([2, 8, 24])
    layer, head = _block(random, "layer", 5, 12, shared), _block(random, "head", 1, 3, shared)
    embed = _block(random, "embed", 1, 2, shared)
    decode_layer = random.choice([layer, _block(random, "decode", 5, 12, shared)])
    sample = _block(random, "sample", 1, 8, shared)
    copies = ["Memcpy HtoD"] * random.choice([0, 1, 3])
    token = ["Memcpy DtoH"] * random.choice([0, 1, 1, 1])
    is_graph, chance = random.random() < 0.6, random.choice([0, 0.02, 0.1, 0.3])
    graphs = random.choice([1, 1, 3])
    steps = random.choice([2, 5, 20, 80])
    if random.random() < 0.4:
        _initialise(host)
    before = len(program.names)
    wait_ns = random.choice([0, 50_000, 500_000])
    lengths = []
    for _ in range(steps):
        program.begins.append(len(program.names))
        host.wait(wait_ns)
        host.launch(copies)
        if random.random() < chance:
            host.launch(embed)
            for _ in range(layers):
                host.launch(layer)
        elif is_graph:
            host.launch([f"CUDA graph {random.randrange(graphs)}"])
        else:
            host.launch(embed)
            for _ in range(layers):
                host.launch(decode_layer)
        host.launch(head + sample + token)
        lengths.append(len(program.names) - program.begins[-1])
    program.begins.append(len(program.names))
    program.period = float(np.median(lengths))
    _cut_capture(program, random, before)
    return program


def _draw_layers(random: Random) -> Program:
    """Draw a capture inside one iteration.

    Only layers, perhaps with the begin or the end of the iteration.
    """
    program = Program("layers")
    host = _Host(program, random, 0)
    shared = [f"elementwise_{number}" for number in range(random.randint(1, 4))]
    if random.random() < 0.5:
        host.launch(_block(random, "embed", 1, 4, shared))
    layer = _block(random, "layer", 2, 14, shared)
    layer += random.choice([[], [], ["Memcpy HtoD"], ["Memcpy DtoD"] * 8])
    for _ in range(random.choice([6, 12, 40, 100])):
        host.launch(layer)
    if random.random() < 0.5:
        host.launch(_block(random, "loss", 2, 6, shared))
    if random.random() < 0.4:
        back = _block(random, "back", 5, 20, shared)
        for _ in range(random.choice([6, 12, 40])):
            host.launch(back)
    return program


def _draw_noise(random: Random) -> Program:
    """Draw a program that calls kernels in random order and number."""
    program = Program("noise")
    host = _Host(program, random, 0)
    calls = [_block(random, f"call_{number}", 1, 6, ["shared_0"]) for number in range(random.randint(2, 12))]
    for _ in range(random.choice([5, 30, 200])):
        host.wait(random.choice([0, 100_000]))
        host.launch(random.choice(calls) * random.choice([1, 1, 2, 3]))
    return program


def _draw_solver(random: Random) -> Program:
    """Draw one or two kernels that alternate: an iteration cannot be told from a part of one."""
    program = Program("solver")
    host = _Host(program, random, 0)
    for _ in range(random.choice([10, 200])):
        host.launch(["solve", "copy"] if random.random() < 0.99 else ["solve"])
    return program


def _initialise(host: _Host) -> None:
    for _ in range(host.random.randint(1, 5)):
        host.wait(50_000)
        host.launch([f"init_{host.random.randrange(6)}"] * host.random.randint(1, 40))
    host.wait(host.random.choice([0, 20 * MILLISECOND]))


def _cut_capture(program: Program, random: Random, before: int) -> None:
    """Perhaps begin the capture inside the first iteration, or end it inside the last one."""
    first, last = 0, len(program.names)
    if random.random() < 0.25 and program.begins[1] > before + 1:
        first = random.randrange(before + 1, program.begins[1])
    if random.random() < 0.25:
        last = random.randrange(program.begins[-2], program.begins[-1] + 1)
    program.keep(min(first, last), last)
