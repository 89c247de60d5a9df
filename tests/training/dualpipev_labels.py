"""Labels of msprof-analyze for the jobs of a DualPipeV schedule, by their positions in a step."""

from __future__ import annotations

import numpy as np

from nsys_pp.training.orders import BACKWARD, BOTH, WEIGHT_GRADIENT, Order, order_jobs

LOGITS = "logits"


def label_jobs_of_stage(
    stage: int, stages: int, micro_batches: int, *, has_logits: bool = False
) -> list[tuple[str, int]]:
    """Label the jobs of a stage in one step, in order.

    Micro-batch k of the second chunk is number `micro_batches + k`. A forward is its number (`7F` where the
    last stage splits its first overlap), a backward `7B`, the two halves of a split backward `7b` and `7w`,
    a forward and a backward at once `3F+5B`.

    Args:
        stage: Of which stage, from 0.
        stages: Stages of the pipeline.
        micro_batches: Of a step; two per stage or more.
        has_logits: The first stage, which also holds the last layers, has a mark of its own before each
            backward of its second chunk in phases 2 to 5.

    Returns:
        Label and phase, 0 to 6, of each job.

    Raises:
        ValueError: There are too few micro-batches.

    >>> label_jobs_of_stage(1, 2, 4)[:6]
    [('0', 1), ('4', 1), ('1', 1), ('5', 1), ('2F', 3), ('4B', 3)]
    """
    order = order_jobs("dualpipev", stage=stage, stages=stages, micro_batches=micro_batches, chunks=2)
    marked = has_logits and stage == 0
    labelled: list[tuple[str, int]] = []
    for label, phase, is_second in zip(
        _labels(order, micro_batches), order.phase.tolist(), _has_second_backward(order), strict=True
    ):
        if marked and is_second and 2 <= phase <= 5:
            labelled.append((LOGITS, phase))
        labelled.append((label, phase))
    return labelled


def count_jobs_of_stage(stage: int, stages: int, micro_batches: int, *, has_logits: bool = False) -> int:
    """Count the jobs that a stage has in a step, marks included.

    By phase 2(p-1-s), 2(s+1), 3(p-1-s), 2(m-2p+s+1) and one more on the last stage, 2(p-1-s), s+1 and p, of
    p stages, m micro-batches and stage s: the counts of msprof-analyze's recipe `pp_chart`.

    >>> [count_jobs_of_stage(stage, 4, 10, has_logits=True) for stage in range(4)]
    [44, 32, 30, 29]
    """
    after = stages - 1 - stage
    phases = (
        2 * after,
        2 * (stage + 1),
        3 * after,
        2 * (micro_batches - 2 * stages + stage + 1) + (after == 0),
        2 * after,
        stage + 1,
        stages,
    )
    # the first stage has no backward of its second chunk left in phase 6: each one has its mark
    return sum(phases) + (micro_batches if has_logits and stage == 0 else 0)


def _labels(order: Order, micro_batches: int) -> list[str]:
    number = (order.micro_batch + micro_batches * order.chunk).tolist()
    partner = (order.backward_micro_batch + micro_batches * order.backward_chunk).tolist()
    is_split = np.append(order.kind[1:] == WEIGHT_GRADIENT, False).tolist()
    columns = (order.kind.tolist(), order.phase.tolist(), is_split, number, partner)
    return [_label(*job) for job in zip(*columns, strict=True)]


def _label(kind: int, phase: int, is_split: bool, number: int, partner: int) -> str:
    if kind == BOTH:
        return f"{number}F+{partner}B"
    if kind == WEIGHT_GRADIENT:
        return f"{number}w"
    if kind == BACKWARD:
        return f"{number}b" if is_split else f"{number}B"
    return f"{number}F" if phase == 3 else f"{number}"


def _has_second_backward(order: Order) -> list[bool]:
    of_backward = np.where(order.kind == BOTH, order.backward_chunk, order.chunk)
    found: list[bool] = (((order.kind == BACKWARD) | (order.kind == BOTH)) & (of_backward == 1)).tolist()
    return found
