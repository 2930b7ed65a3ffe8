"""What each election assumes is said once, and the guide says the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from quoracy.membership.elections import (
    Bully,
    CollectingRing,
    Elector,
    Persisted,
    Ring,
    Terms,
)

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "peer-elections.md"


@pytest.mark.parametrize("elector", [Bully, Ring, CollectingRing, Terms])
def test_the_guide_says_what_is_assumed(elector: type[Elector]) -> None:
    assumptions = elector.assumptions
    guide = GUIDE.read_text(encoding="utf-8")
    section = guide.split(f"### {assumptions.algorithm}\n")[1].split("\n##")[0]
    words = " ".join(section.split())
    for sentence in (*assumptions.assumes, assumptions.two_leaders, assumptions.messages):
        assert sentence in words
    # These go on after "You may" and "You may not".
    assert assumptions.may[1:] in words
    assert assumptions.may_not[1:] in words


def test_every_elector_has_assumptions_of_its_own() -> None:
    electors = (Bully, Ring, CollectingRing, Terms)
    assert len({elector.assumptions.algorithm for elector in electors}) == 4
    assert Persisted.assumptions is Terms.assumptions
