"""Predicted steps of a run with other durations: without its slow ranks, links and hosts, or scaled."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import reduce
from itertools import starmap

import numpy as np
import polars as pl
from msgspec import Struct

from nsys_pp.errors import MissingDataError, OptionError
from nsys_pp.frames.table import Column, Table, build_table_schema
from nsys_pp.frames.training import SCHEDULED_KINDS
from nsys_pp.frames.verdict import MOST_LINES
from nsys_pp.tables.analysis import Evidence
from nsys_pp.tables.words import format_share
from nsys_pp.training.whatif import LEAST_GAIN, Change, WhatIf, Work

_FORMS = {
    "heal": "`rank=5`, `gpu=node2 GPU 0`, `stage=3`, `machine=node2`, `host=6`, `link=2-4`, `data` or `all`",
    "scale": "`rank=5:0.9`, `stage=3:0.8`, `machine=node2:0.9`, `host=6:0.5`, `kind=backward:0.9`,"
    " `link=2-4:0.5` or `link=all:0.5`",
}
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
    if match is None or match[1] not in _SUBJECTS[option] or bool(match[2]) == (match[1] in ("data", "all")):
        raise OptionError(option, f"invalid change {text!r}; expected e.g. {_FORMS[option]}")
    return _Asked(option, text.strip(), match[1], match[2] or "", float(match[3] or 1))


class _Run:
    """A run, and changes of what it names."""

    def __init__(self, run: WhatIf) -> None:
        self.run, self.lanes = run, run.training.lanes
        found = Evidence(run.training).stragglers
        # steps of slow ranks, by lane, as in the verdict
        self.slow = {one.member: one.steps for one in (*found.ranks.slow, *found.guesses.slow)}
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
        found = self.lanes.filter(values == name)["lane"].to_list()
        if not found:
            known = values.drop_nulls().unique(maintain_order=True).to_list()
            shown = (
                f"it is one of {', '.join(known[:8])}{', ...' * (len(known) > 8)}"
                if known
                else "none is known"
            )
            raise OptionError(asked.option, f"no GPU is of {column} {name!r} in {asked.text!r}", shown)
        return found

    def ends(self, asked: _Asked) -> tuple[int, int]:
        """Find the lanes at both ends of a link.

        Raises:
            OptionError: There are none.
        """
        one, dash, other = asked.name.partition("-")
        if not dash:
            raise OptionError(asked.option, f"invalid link in {asked.text!r}; expected e.g. `link=2-4`")
        return self.find(asked, "rank", one)[0], self.find(asked, "rank", other)[0]

    def others(self, lanes: Sequence[int]) -> list[int]:
        """List the peers of lanes: the other ranks of their stage, or all other ranks."""
        group = next((group for group in self.groups if set(lanes) < set(group)), self.every)
        return [lane for lane in group if lane not in lanes]

    def heal(self, lanes: Sequence[int], peers: Sequence[int]) -> Change:
        """Heal lanes; a slow rank in its slow steps."""
        steps = self.slow.get(lanes[0]) if len(lanes) == 1 else None
        return self.run.heal_work(lanes, peers, steps=steps)

    def heal_lanes(self, asked: _Asked) -> Change:
        lanes = self.find(asked, _COLUMNS_OF.get(asked.subject, asked.subject), asked.name)
        return self.heal(lanes, self.others(lanes))

    def heal_host(self, asked: _Asked) -> Change:
        lanes = self.find(asked, "rank", asked.name)
        return self.run.heal_time(lanes, [lane for lane in self.every if lane not in lanes], work="host")

    def heal_link(self, asked: _Asked) -> Change:
        one, other = self.ends(asked)
        return self.run.heal_link(one, other) & self.run.heal_link(other, one)

    def heal_data(self, asked: _Asked) -> Change:
        return self.run.scale(dict.fromkeys(self.every, 0.0), work="data")

    def heal_all(self, asked: _Asked) -> Change:
        # the median of a large group is hardly moved by a slow rank in it
        healed = [
            self.heal(some, [lane for lane in group if lane not in some] or group)
            for group in self.groups
            for some in ([[lane] for lane in group] if len(group) <= MOST_LINES else [group])
        ]
        links = starmap(self.run.heal_link, self.run.links.select("sender", "receiver").unique().rows())
        late = self.run.heal_time(self.every, self.every, work="host")
        return reduce(Change.__and__, (*healed, *links), late)

    def scale_lanes(self, asked: _Asked) -> Change:
        lanes = self.find(asked, _COLUMNS_OF.get(asked.subject, asked.subject), asked.name)
        work: Work = "host" if asked.subject == "host" else "compute"
        return self.run.scale(dict.fromkeys(lanes, asked.factor), work=work)

    def scale_link(self, asked: _Asked) -> Change:
        return self.run.scale_links(asked.factor, None if asked.name == "all" else self.ends(asked))

    def scale_kind(self, asked: _Asked) -> Change:
        if asked.name not in (*SCHEDULED_KINDS, "optimizer", "recompute"):
            known = ", ".join((*SCHEDULED_KINDS, "optimizer", "recompute"))
            raise OptionError(asked.option, f"unknown kind of job in {asked.text!r}; expected {known}")
        return self.run.scale_kind(asked.name, asked.factor)

    def list_heals(self) -> list[_Asked]:
        """List what may be healed: ranks, stages, links and hosts that need most time beyond their peers."""
        lanes, texts = self.lanes.drop_nulls("rank"), list[str]()
        work = np.sum([self.run.saved_ns(self.run.heal_work(group, group)) for group in self.groups], axis=0)
        late = self.run.saved_ns(self.run.heal_time(self.every, self.every, work="host"))
        for subject, saved in (("rank", work), ("host", late)):
            each = lanes.select("rank", saved=pl.Series(saved).gather(lanes["lane"]))
            named = each.filter(pl.col("saved") > 0).group_by("rank").agg(pl.col("saved").max())
            texts += [f"{subject}={rank}" for rank in named.top_k(MOST_LINES, by="saved")["rank"]]
        unranked = self.lanes.filter(pl.col("rank").is_null())["label"][:MOST_LINES]
        stages = self.lanes["stage"].drop_nulls().unique().sort()[:MOST_LINES]
        texts += [
            *(f"gpu={label}" for label in unranked),
            *(f"stage={stage}" for stage in stages if len(stages) > 1),
        ]
        ranks = dict(lanes.select("lane", "rank").iter_rows())
        links = (
            self.run.links.filter(pl.col("sender").is_in([*ranks]), pl.col("receiver").is_in([*ranks]))
            .group_by(
                one=pl.min_horizontal("sender", "receiver"), other=pl.max_horizontal("sender", "receiver")
            )
            .agg(pl.col("transfer_ns").median())
            .top_k(MOST_LINES, by="transfer_ns")
        )
        texts += [f"link={ranks[one]}-{ranks[other]}" for one, other in links.select("one", "other").rows()]
        return [_parse("heal", text) for text in (*texts, "data")]


_COLUMNS_OF = {"host": "rank", "gpu": "label"}  # of `LANES`, where it is not the subject
_SUBJECTS: dict[str, dict[str, Callable[[_Run, _Asked], Change]]] = {
    "heal": {
        **dict.fromkeys(("rank", "gpu", "stage", "machine"), _Run.heal_lanes),
        "host": _Run.heal_host,
        "link": _Run.heal_link,
        "data": _Run.heal_data,
        "all": _Run.heal_all,
    },
    "scale": {
        **dict.fromkeys(("rank", "gpu", "stage", "machine", "host"), _Run.scale_lanes),
        "link": _Run.scale_link,
        "kind": _Run.scale_kind,
    },
}


def predict_steps(run: WhatIf, heal: Sequence[str] = (), scale: Sequence[str] = ()) -> pl.DataFrame:
    """Predict the mean step of a run with other durations.

    Args:
        run: The run.
        heal: What shall take as long as on its peers, where it takes longer.
        scale: What shall take a factor of its time.

    Returns:
        Rows of `WHATIF_TABLE`: each change, and all of them together. Without any, all single heals that gain
        0.1 % of a step, by descending gain, and the run without stragglers.

    Raises:
        OptionError: A value is invalid, or names nothing of the run.
        MissingDataError: There are no steps, or nothing can be predicted.
    """
    asked = [_parse(option, text) for option, texts in (("heal", heal), ("scale", scale)) for text in texts]
    if not (run.training.steps["source"] != "capture").any():
        raise MissingDataError("there are no steps to replay", "`--step-pattern` names them")
    if run.refusal:
        raise MissingDataError(
            f"nothing can be predicted: {run.refusal}",
            "capture more steps, record all ranks, and name the layout with `--layout`",
        )
    of = _Run(run)
    chosen = asked or of.list_heals()
    changes = [_SUBJECTS[one.option][one.subject](of, one) for one in chosen]
    rows = [
        _predict(run, f"{one.option} {one.text}", change) for one, change in zip(chosen, changes, strict=True)
    ]
    if not asked:
        rows = sorted((row for row in rows if row[-2] >= LEAST_GAIN / 10), key=lambda row: -row[-2])
        rows.append(_predict(run, "heal all", of.heal_all(_parse("heal", "all"))))
    elif len(rows) > 1:
        healed = reduce(Change.__and__, changes[: len(heal)], run.unchanged)
        rows.append(_predict(run, "all of these", reduce(Change.__mul__, changes[len(heal) :], healed)))
    return pl.DataFrame(rows, schema=build_table_schema(_COLUMNS), orient="row")


def _predict(run: WhatIf, name: str, change: Change) -> tuple[float, float, float, float, str]:
    gain, most = run.predict(change)
    return run.measured_ns - gain, gain, most, gain / max(run.measured_ns, 1), name


def describe_trust(run: WhatIf) -> str:
    """Describe how far the predictions of a run can be trusted."""
    return (
        f"unchanged, the replay misses the measured step by {format_share(run.error_fraction)};"
        f" clocks leave {format_share(run.bound_fraction)} of it open, waits of unknown cause"
        f" {format_share(run.unknown_fraction)}"
    )


_COLUMNS = (
    Column("step_ns", pl.Float64, "predicted time of a mean step", display_unit="ms"),
    Column(
        "gain_ns",
        pl.Float64,
        "by which it is at least shorter than the measured one; negative: longer",
        display_unit="ms",
    ),
    Column(
        "most_gain_ns",
        pl.Float64,
        "the same, at most: copies and communication of unknown members may begin earlier",
        heading="At most",
        display_unit="ms",
    ),
    Column("gain_fraction", pl.Float64, "the gain as a share of the measured step", heading="Share"),
    Column("change", pl.String, "what takes other times"),
)
WHATIF_TABLE = Table(
    name="whatif",
    title="What if",
    columns=_COLUMNS,
    caption="heal: as long as on its peers, where it takes longer; times of a mean step of the replayed run",
    rows=predict_steps,
    is_fixed=True,
)
