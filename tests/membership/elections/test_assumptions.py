"""What each election assumes is said once, and the guide says the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from quoracy.membership.elections import (
    BULLY_ASSUMPTIONS,
    COLLECTING_ASSUMPTIONS,
    RING_ASSUMPTIONS,
    TERMS_ASSUMPTIONS,
    Assumptions,
    Bully,
    CollectingRing,
    Elector,
    Persisted,
    Ring,
    Terms,
)

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "peer-elections.md"


@pytest.mark.parametrize(
    "assumptions",
    [BULLY_ASSUMPTIONS, RING_ASSUMPTIONS, COLLECTING_ASSUMPTIONS, TERMS_ASSUMPTIONS],
    ids=lambda assumptions: assumptions.algorithm,
)
def test_the_guide_says_what_is_assumed(assumptions: Assumptions) -> None:
    guide = GUIDE.read_text(encoding="utf-8")
    section = guide.split(f"### {assumptions.algorithm}\n")[1].split("\n##")[0]
    words = " ".join(section.split())
    for sentence in (*assumptions.assumes, assumptions.two_leaders, assumptions.messages):
        assert sentence in words
    # These go on after "You may" and "You may not".
    assert assumptions.may[1:] in words
    assert assumptions.may_not[1:] in words


def test_every_elector_has_its_assumptions() -> None:
    electors: list[tuple[type[Elector], Assumptions]] = [
        (Bully, BULLY_ASSUMPTIONS),
        (Ring, RING_ASSUMPTIONS),
        (CollectingRing, COLLECTING_ASSUMPTIONS),
        (Terms, TERMS_ASSUMPTIONS),
        (Persisted, TERMS_ASSUMPTIONS),
    ]
    for elector, assumptions in electors:
        assert elector.assumptions is assumptions
