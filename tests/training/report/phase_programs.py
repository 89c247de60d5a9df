"""Random programs with iterations, and the true phase and thread of each launch."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

Names = list[str]
MAIN, AUTOGRAD, OTHER = 1, 2, 3  # threads


@dataclass
class PhasedProgram:
    """Launches of one device, in order, with the true phase of each: forward, backward, optimizer, or other."""

    kind: str
    names: Names = field(default_factory=list)
    pauses: list[int] = field(default_factory=list)  # of the host before each launch
    busy: list[int] = field(default_factory=list)
    threads: list[int] = field(default_factory=list)
    phases: list[str] = field(default_factory=list)
    iterations: list[int] = field(default_factory=list)  # -1 outside of all

    def keep(self, first: int, last: int) -> None:
        """Keep the launches of [first, last)."""
        for column in ("names", "pauses", "busy", "threads", "phases", "iterations"):
            setattr(self, column, getattr(self, column)[first:last])


class _Host:
    def __init__(self, program: PhasedProgram, random: Random, noise: float) -> None:
        self.program, self.random, self.noise = program, random, noise
        self.lengths: dict[str, int] = {}
        self.pause, self.iteration = 0, -1

    def launch(self, names: Names, phase: str, thread: int = MAIN) -> None:
        for name in names:
            if self.noise and self.random.random() < self.noise:
                if self.random.random() < 0.5:
                    continue
                self._append(f"odd_{self.random.randrange(4)}", phase, thread)
            self._append(name, phase, thread)

    def wait(self, nanoseconds: float) -> None:
        self.pause += int(nanoseconds * self.random.uniform(0.6, 1.6))

    def _append(self, name: str, phase: str, thread: int) -> None:
        if name not in self.lengths:
            self.lengths[name] = int(2_000 * 2 ** self.random.uniform(0, 7))
        program = self.program
        program.names.append(name)
        program.pauses.append(int(self.random.uniform(3_000, 9_000)) + self.pause)
        program.busy.append(int(self.lengths[name] * self.random.uniform(0.9, 1.1)))
        program.threads.append(thread)
        program.phases.append(phase)
        program.iterations.append(self.iteration)
        self.pause = 0


@dataclass
class _Model:
    """Kernels of the parts of a training."""

    embed: Names
    layers: list[Names]
    loss: Names
    loss_back: Names
    backs: list[Names]  # by layer; empty where frozen
    embed_back: Names


def draw_phased_program(seed: int) -> PhasedProgram:
    """Draw a random program: a training, a serving run, a generation with rewards, or a solver."""
    random = Random(f"phases {seed}")
    draw = random.choices([_draw_training, _draw_serving, _draw_adversarial, _draw_solver], [12, 4, 1, 1])[0]
    return draw(random)


def _block(random: Random, own: Names, shared: Names, least: int, most: int) -> Names:
    size = random.randint(least, most)
    return [random.choice(shared) if random.random() < 0.4 else random.choice(own) for _ in range(size)]


def _draw_model(random: Random, count: int) -> _Model:
    """Draw the kernels of a model; its backwards have names of backwards, or not."""
    is_named = random.random() < 0.75
    shared = ["gemm_tn", "gemm_nn", *(f"elementwise_{number}" for number in range(random.randint(1, 4)))]
    own = (
        ["layer_norm_fwd", "flash_fwd", "gelu", "dropout"]
        if random.random() < 0.6
        else ["act", "norm", "rope"]
    )
    own = own[: random.randint(2, 4)]
    if random.random() < 0.1:
        own = [*own, "convolve_dgrad"]  # of a transposed convolution
    back_own = [f"{name.removesuffix('_fwd')}_bwd" for name in own] if is_named else ["reduce_back", "act_2"]
    if is_named and random.random() < 0.3:
        back_own = [*back_own[:1], "conv_dgrad", "conv_wgrad"]
    kinds = random.choice([1, 1, 2])
    layer = [_block(random, own, shared, 4, 14) for _ in range(kinds)]
    back = [_block(random, back_own, shared, 5, 20) for _ in range(kinds)]
    frozen = random.choice([0, 0, 0, count // 2, max(count - 1, 0)])
    loss = random.choice(
        [["softmax_fwd", "nll_loss"], ["reduce", "mse"], ["gemm_tn", "log_softmax", "nll_loss"]]
    )
    loss_back = random.choice(
        [["softmax_bwd"], ["elementwise_0"], ["fill", "gemm_nn", "gemm_nn", "elementwise_0"]]
    )
    embed = _block(random, ["embedding", "index"], shared, 1, 4)
    embed_back = random.choice([["embedding_bwd"], ["sort", "scatter_add"], []])
    return _Model(
        embed=embed,
        layers=[layer[number % kinds] for number in range(count)],
        loss=loss,
        loss_back=loss_back,
        backs=[[] if number < frozen else back[number % kinds] for number in range(count)],
        embed_back=[] if frozen else embed_back,
    )


def _draw_training(random: Random) -> PhasedProgram:
    """Draw a training, with an autograd thread or without, perhaps with micro-batches, evaluations, collectives."""
    program = PhasedProgram("training")
    host = _Host(program, random, random.choice([0, 0, 0, 0.0005, 0.003]))
    count = random.choice([1, 2, 4, 6, 12, 24])
    model = _draw_model(random, count)
    own, side = random.choices(
        [(AUTOGRAD, MAIN), (MAIN, MAIN), (OTHER, OTHER), (AUTOGRAD, OTHER)], [60, 30, 6, 4]
    )[0]  # threads of backwards and of forwards
    micro_batches = random.choice([1, 1, 1, 2, 4, 8])
    update = [random.choice(["multi_tensor_apply", "FusedAdam", "adam_1"])] * random.choice([1, 2, 6, 20])
    update = random.choice([update, update, update, ["step_0", "step_1"] * 8, []])
    clip = random.choice([[], [], ["norm_0", "norm_1"], ["multi_tensor_apply", "elementwise_0"]])
    zero = random.choice([[], [], [], ["fill"] * 12, ["multi_tensor_apply"] * 2])
    zero_at = random.choice(["begin", "between", "end"])
    comm = random.choice([None, None, "ddp", "ddp", "horovod", "zero3", "tensor"])
    batch = random.choice([[], ["Memcpy HtoD"], ["Memcpy HtoD"] * 3])
    augment = random.choice([[], [], [], ["flip", "crop", "normalise"]])
    log = random.choice([[], ["Memcpy DtoH"], ["reduce_log", "Memcpy DtoH"]])
    log_every = random.choice([1, 1, 3, 5, 10])
    log_early = random.random() < 0.3  # before the optimizer
    evaluate_every = random.choice([0, 0, 0, 4, 10])
    ema = random.choice([[], [], [], ["lerp"] * 6])
    is_recomputed = random.random() < 0.25
    inside = bool(update) and random.random() < 0.07  # optimizer in the backward
    teacher = random.random() < 0.05
    load_ns, sync_ns = random.choice([0, 40_000, 2_000_000]), random.choice([0, 60_000, 3_000_000])
    steps = random.choice([4, 6, 12, 25, 40])

    def forward(phase: str = "forward", thread: int = side) -> None:
        host.launch(model.embed, phase, thread)
        for layer in model.layers:
            if comm == "zero3":
                host.launch(["ncclDevKernel_AllGather"], phase, thread)
            host.launch(layer, phase, thread)
            if comm == "tensor":
                host.launch(["ncclDevKernel_AllReduce"], phase, thread)

    def backward(is_last: bool) -> None:
        host.launch(model.loss_back, "backward", own)
        for layer, back in zip(reversed(model.layers), reversed(model.backs), strict=True):
            if not back:
                continue
            if comm == "zero3":
                host.launch(["ncclDevKernel_AllGather"], "backward", own)
            host.launch([*layer, *back] if is_recomputed else back, "backward", own)
            if comm == "tensor":
                host.launch(["ncclDevKernel_AllReduce"], "backward", own)
            if comm == "zero3":
                host.launch(["ncclDevKernel_ReduceScatter"], "backward", own)
            if is_last and comm in ("ddp", "horovod"):
                thread = own if comm == "ddp" else OTHER
                host.launch(["Memcpy DtoD"] * (comm == "horovod"), "backward", thread)
                host.launch(["ncclDevKernel_AllReduce"], "backward", thread)
            if inside and is_last:
                host.launch(update[:2], "backward", own)
        host.launch(model.embed_back, "backward", own)

    for step in range(steps):
        host.iteration = step
        for number in range(micro_batches):
            host.wait(load_ns)
            host.launch(batch + augment, "other")
            if zero_at == "begin" and number == 0:
                host.launch(zero, "other")
            if teacher:
                forward()
            forward()
            host.launch(model.loss, "forward", side)
            if zero_at == "between" and number == 0:
                host.launch(zero, "other")
            backward(number == micro_batches - 1)
        if log_early and step % log_every == log_every - 1:
            host.launch(log, "other")
            host.wait(sync_ns)
        if not inside:
            host.launch(clip, "optimizer")
            host.launch(update, "optimizer")
        host.launch(ema, "optimizer")
        if zero_at == "end":
            host.launch(zero, "optimizer")
        if not log_early and step % log_every == log_every - 1:
            host.launch(log, "other")
            host.wait(sync_ns)
        host.iteration = -1
        if evaluate_every and step % evaluate_every == evaluate_every - 1:
            for _ in range(random.randint(1, 4)):
                host.wait(load_ns)
                host.launch(batch, "other")
                forward("other")
                host.launch(["metric_0", "metric_1"], "other")
    _cut_capture(program, random)
    return program


def _draw_serving(random: Random) -> PhasedProgram:
    """Draw a serving run without graphs: threads launch decodes and samplings; no launch has a phase."""
    program = PhasedProgram("serving")
    host = _Host(program, random, random.choice([0, 0, 0, 0.001]))
    model = _draw_model(random, random.choice([1, 2, 8, 24]))
    worker, copier = random.choice([(MAIN, MAIN), (OTHER, MAIN), (OTHER, AUTOGRAD)])
    comm = random.choice([[], ["ncclDevKernel_AllReduce"]])
    sample = random.choice([["sample_0", "sort"], ["softmax_fwd", "argmax"], ["penalty"] * 6])
    own = random.choice([worker, MAIN])
    copies = random.choice([[], [], ["multi_tensor_apply"] * random.choice([1, 2])])  # of inputs
    wait_ns = random.choice([0, 50_000, 500_000])
    for step in range(random.choice([8, 20, 60])):
        host.iteration = step
        host.wait(wait_ns)
        host.launch(["Memcpy HtoD"] * random.choice([1, 1, 3]), "other", copier)
        host.launch(copies, "other", copier)
        host.launch(model.embed, "other", worker)
        for layer in model.layers:
            host.launch(layer + comm, "other", worker)
        host.launch(sample, "other", own)
        host.launch(["Memcpy DtoH"], "other", copier)
    return program


def _draw_adversarial(random: Random) -> PhasedProgram:
    """Draw a training of two models in turns, each with its optimizer."""
    program = PhasedProgram("adversarial")
    host = _Host(program, random, 0)
    models = [_draw_model(random, random.choice([2, 4, 8])) for _ in range(2)]
    own = random.choice([AUTOGRAD, AUTOGRAD, MAIN])
    update = [["FusedAdam"] * random.choice([1, 4]), ["multi_tensor_apply"] * 3]
    for step in range(random.choice([6, 20])):
        host.iteration = step
        host.launch(["Memcpy HtoD"], "other")
        for number, model in enumerate(models):
            host.launch(model.embed, "forward")
            for layer in model.layers:
                host.launch(layer, "forward")
            host.launch(model.loss, "forward")
            host.launch(model.loss_back, "backward", own)
            for back in reversed(model.backs):
                host.launch(back, "backward", own)
            host.launch(update[number], "optimizer")
        host.launch(["Memcpy DtoH"], "other")
        host.wait(200_000)
    return program


def _draw_solver(random: Random) -> PhasedProgram:
    """Draw a solver: stages with pauses, exchanges and copies, in one thread or two."""
    program = PhasedProgram("solver")
    host = _Host(program, random, 0)
    threads = random.choice([(MAIN, MAIN), (MAIN, OTHER)])
    if random.random() < 0.4:
        sweeps = (
            ["forward_sweep"] * random.choice([4, 9]) + ["axpy", "dot"],
            ["backward_sweep"] * 7,
            ["compute_grad_x"],
        )
        for step in range(20):
            host.iteration = step
            for number, sweep in enumerate(sweeps):
                host.launch(sweep * random.choice([1, 2]), "other", threads[number % 2])
            host.launch(["Memcpy DtoH"], "other")
        return program
    stages = [[f"stage_{number}_{part}" for part in range(random.randint(2, 9))] for number in range(4)]
    for step in range(random.choice([8, 30])):
        host.iteration = step
        for number, stage in enumerate(stages):
            host.launch(stage, "other", threads[number % 2])
            host.wait(random.choice([0, 0, 1]) and 100_000)
        host.launch(["Memcpy DtoH"], "other")
        host.wait(300_000)
    return program


def _cut_capture(program: PhasedProgram, random: Random) -> None:
    """Perhaps begin the capture inside the first iteration, or end it inside the last one."""
    count = len(program.names)
    first = random.randrange(program.iterations.count(0)) if random.random() < 0.25 else 0
    last = count - random.randrange(program.iterations.count(0)) if random.random() < 0.25 else count
    program.keep(first, max(last, first + 1))
