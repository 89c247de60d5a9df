"""Verdict of an analysis: findings in plain words, by the time that could be gained."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import asdict

# Certain: measured, or a comparison with twice the excess that noise explains, in three steps or more.
# Likely: a comparison beyond noise. Guess: it depends on jobs, steps or peers that are inferred.
Confidence = Literal["certain", "likely", "guess"]
Subject = Literal["rank", "stage", "link", "machine", "step", "run", "clocks"]
MOST_LINES = 5
_WORDS = ("rank ", "stage ")  # begin labels that are words, not names of machines


class Finding(Struct, frozen=True, kw_only=True):
    """One statement about a run.

    Attributes:
        kind: What was found, as "straggler" or "host"; "none": nothing exceeds noise.
        text: The statement in plain words, without its confidence.
        confidence: See `Confidence`.
        subject: Kind of the object.
        gain_ns: Time of a step that could be gained, the middle of a range; 0 if unknown.
        gain_error_ns: By which it may be more or less, where clocks or peers are unknown.
        gain_fraction: The same as a share of the mean step, and so of all steps.
        label: Name of the object.
        lane: Lane of a rank, or of the sender of a link.
        stage: Stage, or stage of the rank.
        step: Step to which the finding is limited.
        since_step: First step of a finding that began inside the capture.
        value_ns: Measured value.
        usual_ns: Value of the peers, of other steps, or of the ideal.
        excess_fraction: Relative excess of the value.
        noise_fraction: Excess that noise explains.
        bound_ns: Error of the clocks.
        sample_count: Number of samples.
        call: Call or range in which the host was.
    """

    kind: str
    text: str
    confidence: Confidence
    subject: Subject
    gain_ns: float = 0.0
    gain_error_ns: float = 0.0
    gain_fraction: float = 0.0
    label: str | None = None
    lane: int | None = None
    stage: int | None = None
    step: int | None = None
    since_step: int | None = None
    value_ns: float | None = None
    usual_ns: float | None = None
    excess_fraction: float | None = None
    noise_fraction: float | None = None
    bound_ns: int | None = None
    sample_count: int | None = None
    call: str | None = None

    @property
    def line(self) -> str:
        """The statement as a sentence; findings that are not certain begin with their confidence."""
        text = self.text if self.confidence == "certain" else f"{self.confidence}: {self.text}"
        if self.label is None or not text.startswith(self.label) or self.label.startswith(_WORDS):
            text = f"{text[:1].upper()}{text[1:]}"
        return f"{text}."


class Verdict(Struct, frozen=True, kw_only=True):
    """The findings of an analysis.

    Attributes:
        findings: At most `MOST_LINES`, by descending gain; the clocks are last, or first if they exclude
            comparisons.
    """

    findings: tuple[Finding, ...] = ()

    @property
    def lines(self) -> list[str]:
        """The findings as sentences."""
        return [finding.line for finding in self.findings]

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return the findings as plain types, for JSON."""
        return [{"line": finding.line, **asdict(finding)} for finding in self.findings]


NO_VERDICT = Verdict()
