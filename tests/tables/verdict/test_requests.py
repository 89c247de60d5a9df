"""Serving runs that wait between batches: for requests, which is no fault of a host, and while requests are in flight, which is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import nsys_pp
from fixtures.serving.engines import ENGINES
from fixtures.serving.reports import write_reports
from fixtures.serving.simulate import draw_serving, serve
from nsys_pp.frames.verdict import Finding

_IDLE_NS = 20_000_000
_WITH_KINDS = [name for name in ENGINES if name != "triton"]


def find(folder: Path, engine: str, seed: int, kind: str | None) -> list[Finding]:
    serving = draw_serving(seed, engine=engine)
    load = replace(serving.load, idle=None if kind is None else (kind, _IDLE_NS), late_sync=False)
    serving = replace(serving, load=load)
    write_reports(folder, serving, serve(serving, seed))
    return list(nsys_pp.pipeline(folder).verdict.findings)


@pytest.mark.few(3)
@pytest.mark.parametrize("engine", _WITH_KINDS)
def test_a_server_that_waits_for_requests_is_not_blamed(tmp_path: Path, engine: str) -> None:
    found = find(tmp_path, engine, 9_100, "prefill")
    [requests] = [finding for finding in found if finding.kind == "requests"]
    assert requests.confidence == "guess"
    assert requests.gain_ns == 0
    assert requests.value_ns is not None
    # no finding blames the waits: each is 20 ms, in runs of some ms
    blamed = [finding for finding in found if finding.kind in ("host", "idle", "step", "profiler")]
    assert all(finding.gain_ns < _IDLE_NS / 40 for finding in blamed), [finding.line for finding in blamed]


@pytest.mark.few(2)
@pytest.mark.parametrize("engine", _WITH_KINDS)
def test_a_host_that_waits_while_requests_run_is_blamed(tmp_path: Path, engine: str) -> None:
    found = find(tmp_path, engine, 9_101, "decode")
    assert not [finding for finding in found if finding.kind == "requests"]
    assert found[0].kind in ("idle", "host"), [finding.line for finding in found]
    assert found[0].gain_ns > _IDLE_NS / 40


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(9_200, 9_208))
def test_without_waits_nothing_is_said_of_requests(tmp_path: Path, seed: int) -> None:
    found = find(tmp_path, _WITH_KINDS[seed % len(_WITH_KINDS)], seed, None)
    assert not [finding for finding in found if finding.kind == "requests"]
