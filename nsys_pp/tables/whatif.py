"""Predicted steps of a run with other durations: without its slow ranks, links and hosts, or scaled."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cached_property, reduce
from itertools import starmap

import numpy as np
import polars as pl
from msgspec import Struct

from nsys_pp.errors import MissingDataError, OptionError
from nsys_pp.frames.table import Column, Table, build_table_schema
from nsys_pp.frames.training import SCHEDULED_KINDS
from nsys_pp.frames.verdict import MOST_LINES
from nsys_pp.tables.words import format_share, join_names
from nsys_pp.training.plan import WEIGHT_SHARES, Order, Planned, Planner
from nsys_pp.training.whatif import LEAST_GAIN, MOST_ERROR, Change, WhatIf, Work

_FORMS = {
    "heal": "`rank=5`, `gpu=node2 GPU 0`, `stage=3`, `machine=node2`, `host=6`, `link=2-4`, `data`, `lengths`"
    " or `all`",
    "scale": "`rank=5:0.9`, `stage=3:0.8`, `machine=node2:0.9`, `host=6:0.5`, `kind=backward:0.9`,"
    " `link=2-4:0.5`, `link=all:0.5` or `communication:0.5`",
}
_ALONE = ("data", "lengths", "all", "communication")  # subjects without a name
_TAILS = {"heal": "()", "scale": r":(\d*\.?\d+)"}


class _Asked(Struct, frozen=True):
    """One change: an option with its value, and what it names."""

    option: str
    text: str
    subject: str
    name: str = ""
    factor: float = 1.0


def _parse(option: str, text: str) -> _Asked:
    """Parse one value of `--heal` or `--scale`.

    Raises:
        OptionError: It has another form.
    """
    match = re.fullmatch(rf"(\w+)(?:=([^:=]+))?{_TAILS[option]}", text.strip())
    if match is None or match[1] not in _SUBJECTS[option] or bool(match[2]) == (match[1] in _ALONE):
        raise OptionError(option, f"invalid change {text!r}; expected e.g. {_FORMS[option]}")
    return _Asked(option, text.strip(), match[1], match[2] or "", float(match[3] or 1))


class _Run:
    def __init__(self, run: WhatIf) -> None:
        self.run = run
        # lanes that ran in steps
        self.lanes = run.training.lanes.filter(pl.col("lane").is_in(np.unique(run.graph.pieces.lane)))
        self.every = self.lanes["lane"].to_list()
        stages = self.lanes.group_by("stage", maintain_order=True).agg("lane")["lane"].to_list()
        # ranks are compared with the others of their stage; if each is alone on its own, with all
        self.groups = stages if max(map(len, stages)) > 1 else [self.every]

    def find(self, asked: _Asked, column: str, name: str) -> list[int]:
        """Find the lanes with a value of a column.

        Raises:
            OptionError: There are none.
        """
        values = self.lanes[column].cast(pl.String)
        known = values.drop_nulls().unique(maintain_order=True).to_list()
        if name not in known:
            shown = f"it is one of {join_names(known)}" if known else "none is known"
            raise OptionError(asked.option, f"no GPU is of {column} {name!r} in {asked.text!r}", shown)
        return self.lanes.filter(values == name)["lane"].to_list()

    def ends(self, asked: _Asked) -> tuple[int, int]:
        """Find the lanes at both ends of a link.

        Raises:
            OptionError: There are none.
        """
        one, _, other = asked.name.partition("-")
        if not (one.isdigit() and other.isdigit()):
            raise OptionError(asked.option, f"invalid link in {asked.text!r}; expected two ranks: `link=2-4`")
        found = self.find(asked, "rank", one)[0], self.find(asked, "rank", other)[0]
        if set(found) not in map(set, self.run.links.select("sender", "receiver").unique().rows()):
            raise OptionError(asked.option, f"no messages are known between the ranks in {asked.text!r}")
        return found

    def heal_lanes(self, asked: _Asked) -> Change:
        """Heal lanes by the other ranks of their stage; a whole stage, and ranks alone on theirs, by all."""
        lanes = self.find(asked, _COLUMNS_OF[asked.subject], asked.name)
        others = [lane for lane in self.every if lane not in lanes]
        if not others:
            raise OptionError(asked.option, f"{asked.text!r} has no peers to be compared with")
        inside = [([lane for lane in group if lane in lanes], group) for group in self.groups]
        return reduce(
            Change.__and__,
            (
                self.run.heal_work(own, [lane for lane in group if lane not in lanes] or others)
                for own, group in inside
                if own
            ),
        )

    def heal_late(self, asked: _Asked) -> Change:
        lanes = self.find(asked, _COLUMNS_OF[asked.subject], asked.name)
        return self.run.heal_time(lanes, [lane for lane in self.every if lane not in lanes], work="host")

    def heal_link(self, asked: _Asked) -> Change:
        one, other = self.ends(asked)
        is_own = pl.col("sender").is_in([one, other]) & pl.col("receiver").is_in([one, other])
        own, others = (self.run.links.filter(chosen)["is_local"] for chosen in (is_own, ~is_own))
        if not others.is_in(own.implode()).any():  # both directions of a link may share kernels, and are slow
            raise OptionError(asked.option, f"no other link is like that in {asked.text!r}")
        return self.run.heal_link(one, other) & self.run.heal_link(other, one)

    def heal_all(self, asked: _Asked) -> Change:
        # the median of a large group is hardly moved by a slow rank in it
        healed = [
            self.run.heal_work(some, [lane for lane in group if lane not in some] or group)
            for group in self.groups
            for some in ([[lane] for lane in group] if len(group) <= MOST_LINES else [group])
        ]
        whole = [group for group in self.groups if len(group) < len(self.every)]
        healed += [
            self.run.heal_work(group, [lane for lane in self.every if lane not in group]) for group in whole
        ]
        # all gain at least what any of them gains alone
        each = [change for one, change in self.single_heals if one.subject != "lengths"]
        links = starmap(self.run.heal_link, self.run.links.select("sender", "receiver").unique().rows())
        late = self.run.heal_time(self.every, self.every, work="host")
        return reduce(Change.__and__, (*healed, *each, *links, late))

    def scale_lanes(self, asked: _Asked) -> Change:
        lanes = self.find(asked, _COLUMNS_OF[asked.subject], asked.name)
        work: Work = "host" if asked.subject == "host" else "compute"
        return self.run.scale(dict.fromkeys(lanes, asked.factor), work=work)

    def scale_link(self, asked: _Asked) -> Change:
        links = self.run.links.select("sender", "receiver", factor=asked.factor).unique()
        if asked.name != "all":
            links = links.filter(pl.col("sender", "receiver").is_in(self.ends(asked)))
        return self.run.scale_links(links)

    def scale_kind(self, asked: _Asked) -> Change:
        known = (*SCHEDULED_KINDS, "optimizer", "recompute")
        if asked.name not in known:
            raise OptionError(
                asked.option, f"unknown kind of job in {asked.text!r}; expected {', '.join(known)}"
            )
        return self.run.scale_kind(asked.name, asked.factor)

    @cached_property
    def single_heals(self) -> list[tuple[_Asked, Change]]:
        """What may be healed, and how: ranks, stages, links and hosts that need most time, data, lengths."""
        lanes, texts = self.lanes.drop_nulls("rank"), list[str]()
        work = np.sum([self.run.saved_ns(self.run.heal_work(group, group)) for group in self.groups], axis=0)
        late = self.run.saved_ns(self.run.heal_time(self.every, self.every, work="host"))
        for subject, saved in (("rank", work), ("host", late)):
            each = lanes.select("rank", saved=pl.Series(saved).gather(lanes["lane"]))
            named = (
                each.group_by("rank")
                .agg(pl.col("saved").max(), count=pl.len())
                .filter(pl.col("saved") > 0, pl.col("count") < len(self.every))  # it has peers
            )
            texts += [f"{subject}={rank}" for rank in named.top_k(MOST_LINES, by="saved")["rank"]]
        unranked = self.lanes.filter(pl.col("rank").is_null())["label"][:MOST_LINES]
        stages, machines = (
            self.lanes[name].drop_nulls().unique().sort()[:MOST_LINES] for name in ("stage", "machine")
        )
        texts += [
            *(f"gpu={label}" for label in unranked if len(self.every) > 1),
            *(f"stage={stage}" for stage in stages if len(stages) > 1),
            *(f"machine={machine}" for machine in machines if len(machines) > 1),
        ]
        ranks = dict(lanes.select("lane", "rank").iter_rows())
        links = (
            self.run.links.filter(pl.col("sender").is_in([*ranks]), pl.col("receiver").is_in([*ranks]))
            .group_by(
                "is_local",
                one=pl.min_horizontal("sender", "receiver"),
                other=pl.max_horizontal("sender", "receiver"),
            )
            .agg(pl.col("transfer_ns").median())
            .filter(pl.len().over("is_local") > 1)  # links that no other is like cannot be healed
            .top_k(MOST_LINES, by="transfer_ns")
        )
        texts += [f"link={ranks[one]}-{ranks[other]}" for one, other in links.select("one", "other").rows()]
        asked = [_parse("heal", text) for text in (*texts, "data", "lengths")]
        return [(one, _SUBJECTS[one.option][one.subject](self, one)) for one in asked]


# Columns of `LANES` with the names of lanes.
_COLUMNS_OF = {"rank": "rank", "gpu": "label", "stage": "stage", "machine": "machine", "host": "rank"}
_SUBJECTS: dict[str, dict[str, Callable[[_Run, _Asked], Change]]] = {
    "heal": {
        **dict.fromkeys(_COLUMNS_OF, _Run.heal_lanes),
        "host": _Run.heal_late,
        "link": _Run.heal_link,
        "data": lambda of, _: of.run.scale(dict.fromkeys(of.every, 0.0), work="data"),
        "lengths": lambda of, _: of.run.even_lengths(),
        "all": _Run.heal_all,
    },
    "scale": {
        **dict.fromkeys(_COLUMNS_OF, _Run.scale_lanes),
        "link": _Run.scale_link,
        "kind": _Run.scale_kind,
        "communication": lambda of, asked: of.run.scale_communication(asked.factor),
    },
}


class Question(Struct, frozen=True, kw_only=True):
    """What shall be other than recorded; if nothing, all that gains is healed one by one, then together.

    Attributes:
        heal: What shall take as long as on its peers, where it takes longer.
        scale: What shall take a factor of its time.
        balance: All stages shall have the same compute, kind by kind.
        schedule: Schedule of the jobs, a name of `SCHEDULES`; None: the recorded one.
        micro_batches: Micro-batches of a step; None: as recorded.
    """

    heal: tuple[str, ...] = ()
    scale: tuple[str, ...] = ()
    balance: bool = False
    schedule: str | None = None
    micro_batches: int | None = None

    def __post_init__(self) -> None:
        """Refuse invalid values before a report is read."""
        self.parse()

    def parse(self) -> list[_Asked]:
        """Parse the changes of durations.

        Raises:
            OptionError: One is invalid.
        """
        texts = (("heal", self.heal), ("scale", self.scale))
        return [_parse(option, text) for option, own in texts for text in own]


class Answer(Struct, frozen=True, kw_only=True):
    """Predictions of the mean step.

    Attributes:
        rows: Rows of `WHATIF_TABLE`: each change, and all of them together. Without any, all single heals
            that gain 0.1 % of a step, by descending gain, and the run without stragglers.
        title: All changes in words.
        change: All changes of durations together.
        planned: All steps with all changes, if their jobs are in another order.
        more: How many times as many micro-batches they have.
        notes: What is assumed, and how far to trust it, in sentences.
    """

    rows: pl.DataFrame
    title: str
    change: Change
    planned: Planned | None
    more: float
    notes: tuple[str, ...]


def answer(run: WhatIf, question: Question) -> Answer:
    """Predict the mean step of a run with other durations, or another order of its jobs.

    Raises:
        OptionError: A value is invalid, or names nothing of the run.
        MissingDataError: There are no steps, or nothing can be predicted.
    """
    if run.refusal:
        reason, hint = run.refusal
        raise MissingDataError(f"nothing can be predicted: {reason}", hint)
    asked = question.parse()
    of, has_order = _Run(run), not (question.schedule is None and question.micro_batches is None)
    is_open = not (asked or question.balance or has_order)
    both = (
        of.single_heals if is_open else [(one, _SUBJECTS[one.option][one.subject](of, one)) for one in asked]
    )
    chosen, changes = [one for one, _ in both], [change for _, change in both]
    for one, change in zip(chosen, changes, strict=True):
        if one.factor != 1 and (change.pieces == 1).all() and (change.kernels == 1).all():
            raise OptionError(one.option, f"nothing of {one.text!r} was recorded")
    names = [f"{one.option} {one.text}" for one in chosen]
    if question.balance or (is_open and of.lanes["stage"].drop_nulls().n_unique() > 1):
        names, changes = [*names, "balance"], [*changes, run.balance()]
    rows = [_describe(run, name, *run.predict(change)) for name, change in zip(names, changes, strict=True)]
    notes = [
        f"unchanged, the replay misses the measured step by {format_share(run.error_fraction)};"
        f" clocks leave {format_share(run.bound_fraction)} of it open, waits of unknown cause"
        f" {format_share(run.unknown_fraction)}"
    ]
    planned, more = None, 1.0
    if is_open:
        total = of.heal_all(_parse("heal", "all"))
        kept = [row for row in rows if row[1] >= LEAST_GAIN * run.measured_ns / 10]
        # of those that gain as much, the narrowest comes first: a rank, not its machine
        kept = sorted(kept, key=lambda row: -round(row[3], 3))
        rows = [*kept, _describe(run, "heal all", *run.predict(total))]
        names, notes = ["heal all"], [*notes, *_explain(run, kept, rows[-1][1])]
    else:
        notes += [
            f"`{name}` is of kernels and copies; the same of its host gains {format_share(share)} of a step: "
            "`--heal data` or `--heal host=RANK`"
            for name, one, row in zip(names, asked, rows, strict=False)
            if one.option == "heal" and one.subject in {*_COLUMNS_OF} - {"host"} and row[3] < LEAST_GAIN
            if (share := run.predict(of.heal_late(one))[1] / run.measured_ns) >= LEAST_GAIN
        ]
        healed = reduce(Change.__and__, changes[: len(question.heal)], run.unchanged)
        total = reduce(Change.__mul__, changes[len(question.heal) : len(asked)], healed)
        if question.balance:  # of what is left
            total *= run.balance(total)
        gains = run.predict(total)
        if has_order:
            orders = _Orders(run, question)
            rows += [orders.describe(name, order) for name, order in orders.asked.items()]
            own, planned = orders.predict(orders.all, Planner(run, total), run.step_ns(total))
            gains, more = (gains[0] + own[0], gains[1] + own[1]), orders.count(orders.all)
            names, notes = [*names, *orders.asked], [*notes, *orders.notes]
        if len(rows) > 1:
            rows.append(_describe(run, "all of these", *gains, more=more))
    frame = pl.DataFrame(rows, schema=build_table_schema(_COLUMNS), orient="row")
    return Answer(
        rows=frame, title=" and ".join(names), change=total, planned=planned, more=more, notes=tuple(notes)
    )


def _explain(run: WhatIf, rows: Sequence[_Row], total: float) -> list[str]:
    """Say how much of what stragglers cost one of them explains; nothing where they cost little."""
    heals = ((name.partition("heal ")[2], gain) for _, gain, _, _, _, name in rows)
    gains = {name: gain for name, gain in heals if name}
    lengths, least, notes = gains.pop("lengths", 0.0), LEAST_GAIN * run.measured_ns, []
    if gains and total >= least:
        # of those that gain about as much, the first is the narrowest: a rank, not its stage
        name = next(name for name, gain in gains.items() if gain >= 0.9 * max(gains.values()))
        share = min(1.0, gains[name] / total)
        one = f"{name} explains {format_share(share)} of what stragglers cost"
        notes.append(
            one if share >= 0.5 else "no single rank, stage or link explains half of what stragglers cost"
        )
    if lengths >= max(least, total):
        notes.append("jobs of one kind vary in length on each rank, and this costs more than all stragglers")
    return notes


_Row = tuple[float, float, float, float, float, str]


class _Orders:
    def __init__(self, run: WhatIf, question: Question) -> None:
        self.run, self.asked, self.planner = run, dict[str, Order](), Planner(run, run.unchanged)
        self.error = abs(self.planner.recorded_ns / run.measured_ns - 1)
        if self.error > MOST_ERROR:
            raise MissingDataError(
                "no other order of jobs can be predicted: in the recorded one, the replay of jobs misses the"
                f" step by {format_share(self.error)}",
                "`nsys-pp pipeline` shows what lies between the jobs",
            )
        schedule, count = question.schedule, question.micro_batches
        if count is not None:
            self.asked[f"micro-batches {count:,}"] = self.planner.choose(None, count)
        if schedule is not None:
            self.asked[f"schedule {schedule}"] = self.planner.choose(schedule, None)
        self.all = self.planner.choose(schedule, count)

    def count(self, order: Order) -> float:
        """Return how many times as many micro-batches a step has."""
        return order.micro_batches / self.planner.recorded.micro_batches

    def describe(self, name: str, order: Order) -> _Row:
        """Predict the step of an order alone."""
        gains, _ = self.predict(order, self.planner, self.run.replayed_ns)
        return _describe(self.run, name, *gains, more=self.count(order))

    def predict(
        self, order: Order, planner: Planner, replayed_ns: float
    ) -> tuple[tuple[float, float], Planned]:
        """Return the least and the largest gain of an order, beyond that of a change, and its steps.

        Args:
            order: The order.
            planner: Of the change.
            replayed_ns: Replayed step with the change, in the recorded order.
        """
        planned = planner.predict(order)
        if order == planner.recorded:
            return (0.0, 0.0), planned[0]
        # another order may be missed by as much as the recorded one
        missed = abs(replayed_ns - planner.recorded_ns) * self.count(order)
        gains = [planner.recorded_ns - one.step_ns for one in planned]
        return (min(gains) - missed, max(gains) + missed), planned[0]

    @property
    def notes(self) -> list[str]:
        """What is assumed, in sentences."""
        of, missed = self.planner, format_share(self.error)
        notes = [
            f"in the recorded order, the replay of jobs misses the step by {missed}, and may in another;"
            " messages take as long as the recorded ones, and micro-batches are as large"
        ]
        if (more := self.count(self.all)) != 1:
            notes.append(
                f"a step has {more:.3g} times as many micro-batches, and gains against as many measured ones;"
                " waits for data stay as they are"
            )
        if of.assumes_weights(self.all):
            least, most = map(format_share, WEIGHT_SHARES)
            notes.append(
                f"assumed: weight gradients take {least} to {most} of a backward, as none is recorded apart"
            )
        if self.all.chunks > 1 and self.all.chunks != of.recorded.chunks:
            notes.append(f"assumed: {self.all.chunks} chunks of a stage take equal parts of its time")
        return notes


def _describe(run: WhatIf, name: str, gain: float, most: float, *, more: float = 1.0) -> _Row:
    """Describe a gain as one against the measured time of as many micro-batches: `more` steps."""
    step, measured = run.measured_ns - gain, more * run.measured_ns
    saved = measured - step
    return step, saved, saved + most - gain, saved / max(measured, 1), measured / max(step, 1), name


_COLUMNS = (
    Column("step_ns", pl.Float64, "predicted time of a mean step", display_unit="ms"),
    Column(
        "gain_ns",
        pl.Float64,
        "by which it is shorter than the measured time of as many micro-batches; the least where something is"
        " open; negative: longer",
        display_unit="ms",
    ),
    Column(
        "most_gain_ns",
        pl.Float64,
        "the same, if all that is open or assumed is in its favour",
        heading="At most",
        display_unit="ms",
    ),
    Column("gain_fraction", pl.Float64, "the gain as a share of the measured step", heading="Share"),
    Column("speed_up", pl.Float64, "micro-batches per time, as a multiple of the measured ones", decimals=3),
    Column("change", pl.String, "what is other than recorded"),
)
WHATIF_TABLE = Table(
    name="whatif",
    title="What if",
    columns=_COLUMNS,
    caption="step: the mean one of the replayed run; gain: by which it is shorter than measured; at most:"
    " with all that is open in its favour; heal: as long as on its peers, where it takes longer; balance:"
    " the same compute on each stage",
    rows=lambda found: found.rows,
    is_fixed=True,
)
