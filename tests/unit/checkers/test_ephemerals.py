"""Ephemerals: early, late and not looked at; and what an outage excuses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.checkers.ephemerals import Ephemeral, check_ephemerals

# The session is heard last between 100 and 101, so the node has to go between 110 and 113.
NODE = Ephemeral("/e", 0x1F, 10.0, acked=100.0, alive=101.0, seen=109.0, missing=110.5)


@pytest.mark.parametrize("missing", [110.0, 110.5, 112.9, 113.0])
def test_gone_in_time(missing: float) -> None:
    verdict = check_ephemerals([replace(NODE, missing=missing)])
    assert verdict.ok, verdict.problem
    assert verdict.checked == 1


def test_gone_early_is_caught() -> None:
    verdict = check_ephemerals([NODE, replace(NODE, path="/x", seen=105.0, missing=109.5)])
    assert not verdict.ok
    assert verdict.problem == (
        "/x of session 0x1f: early by 0.500 s: missing 9.500 s after a request that was acknowledged, "
        "with a timeout of 10.000 s"
    )


def test_where_less_is_promised_the_times_told_are_those_that_were_measured() -> None:
    node = replace(NODE, seen=105.0, missing=106.5, sure_s=6.667)
    assert check_ephemerals([replace(node, missing=106.7)])
    assert check_ephemerals([node]).problem == (
        "/e of session 0x1f: early by 0.167 s: missing 6.500 s after a request that was acknowledged, "
        "with a timeout of 10.000 s, of which 6.667 s were promised"
    )


def test_a_session_that_was_closed_may_end_at_once() -> None:
    assert check_ephemerals([replace(NODE, seen=101.0, missing=102.0, ended=101.5)])
    gone_before = replace(NODE, seen=101.0, missing=102.0, ended=105.0)
    assert "early" in check_ephemerals([gone_before]).problem


@pytest.mark.parametrize("missing", [None, 120.0])
def test_still_there_after_the_deadline_is_caught(missing: float | None) -> None:
    verdict = check_ephemerals([replace(NODE, seen=113.5, missing=missing)])
    assert verdict.problem == "/e of session 0x1f: late: still there 0.500 s after its deadline"


def test_the_slack_can_be_told() -> None:
    assert not check_ephemerals([replace(NODE, seen=111.0, missing=112.5)], slack_s=1.0).ok
    assert check_ephemerals([replace(NODE, seen=113.5, missing=114.0)], slack_s=5.0)


@pytest.mark.parametrize("missing", [None, 120.0])
def test_a_node_nobody_looked_at_is_unknown(missing: float | None) -> None:
    verdict = check_ephemerals([replace(NODE, missing=missing)])
    assert not verdict.ok
    assert verdict.problem.startswith("unknown: ")


def test_a_violation_is_told_before_what_is_unknown() -> None:
    unknown = replace(NODE, path="/unseen", missing=None)
    late = replace(NODE, path="/late", seen=114.0, missing=None)
    assert check_ephemerals([unknown, late]).problem.startswith("/late of session 0x1f: late")


def test_an_outage_gives_every_session_its_whole_time_again() -> None:
    late = replace(NODE, seen=120.0, missing=121.0)
    assert check_ephemerals([late], outages=[(105.0, 110.0)])
    assert check_ephemerals([late], outages=[(90.0, 110.0)])
    assert not check_ephemerals([late], outages=[(105.0, 107.0)])
    assert not check_ephemerals([late], outages=[(90.0, 100.0)]), "it was over before"
    assert not check_ephemerals([late], outages=[(114.0, 119.0)]), "it was too late to matter"
    assert check_ephemerals([late], outages=[(112.0, 115.0), (105.0, 106.0)])


def test_an_outage_does_not_excuse_going_early() -> None:
    early = replace(NODE, seen=105.0, missing=108.0)
    assert "early" in check_ephemerals([early], outages=[(103.0, 106.0)]).problem


def test_a_session_heard_after_its_last_sign_of_life_is_refused() -> None:
    with pytest.raises(ValueError, match="alive until"):
        check_ephemerals([replace(NODE, alive=99.0)])
