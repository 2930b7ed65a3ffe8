"""Queries of a member: a question, an answer, and nothing but `ProtocolError` for anything else."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quoracy.errors import ProtocolError
from quoracy.membership.machine import SendStream, Tell
from quoracy.membership.runtime.queries import REPORT_AGE_S, AgentReport, Asker, Reporter

REPORT = AgentReport(
    name="a",
    address="10.0.0.1:7946",
    uptime_s=1.0,
    health=0,
    health_max=7,
    is_encrypted=False,
    members=[],
    protocol={"probes": 1},
    traffic={},
    dropped={},
)


def question() -> bytes:
    [effect] = Asker("10.0.0.1:7946").start(0.0)
    assert isinstance(effect, SendStream)
    return effect.data


def test_what_is_asked_is_answered_to_whoever_asked() -> None:
    [answer] = Reporter(lambda: REPORT).receive_stream(question(), "asker:1", 0.0)
    assert isinstance(answer, SendStream)
    assert answer.to == "asker:1"
    assert Asker("10.0.0.1:7946").receive_stream(answer.data, "10.0.0.1:7946", 0.0) == [Tell(REPORT)]


def test_a_report_is_made_no_more_often_than_it_ages() -> None:
    made = []

    def report() -> AgentReport:
        made.append(1)
        return REPORT

    reporter = Reporter(report)
    for number in range(100):
        assert reporter.receive_stream(question(), "x:1", number * REPORT_AGE_S / 10)
    assert len(made) == 10


def test_neither_side_ever_needs_a_timer() -> None:
    for machine in (Reporter(lambda: REPORT), Asker("10.0.0.1:7946")):
        assert machine.next_due == math.inf
        assert machine.tick(1.0) == machine.unreachable("x:1", 1.0) == []


@given(st.binary(max_size=200))
def test_garbage_is_a_protocol_error_to_both_sides(data: bytes) -> None:
    for machine in (Reporter(lambda: REPORT), Asker("10.0.0.1:7946")):
        for receive in (machine.receive, machine.receive_stream):
            with pytest.raises(ProtocolError):
                receive(data, "x:1", 0.0)


@given(st.integers(0, 10_000), st.binary(min_size=1, max_size=3))
def test_a_damaged_report_is_a_report_or_a_protocol_error(where: int, damage: bytes) -> None:
    [answer] = Reporter(lambda: REPORT).receive_stream(question(), "x:1", 0.0)
    assert isinstance(answer, SendStream)
    at = where % len(answer.data)
    damaged = answer.data[:at] + damage + answer.data[at + len(damage) :]
    try:
        [told] = Asker("10.0.0.1:7946").receive_stream(damaged, "x:1", 0.0)
    except ProtocolError:
        return
    assert isinstance(told, Tell)
    assert isinstance(told.event, AgentReport)
