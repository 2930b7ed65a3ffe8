"""What is easily got wrong, case by case: Quoracy answers as ZooKeeper does.

What ZooKeeper said is kept in zk_edge_cases.txt; QUORACY_REWRITE=1 writes it anew, and the diff is the
review.

QUORACY_FAULTS=long   a cell of three answers so as well
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.differential.zk_edge_cases import CASES
from tests.differential.zk_lockstep import Lockstep
from tests.differential.zk_sides import ON_CELL, running_pair
from tests.differential.zk_steps import Connect
from tests.differential.zk_transcript import keep, kept, transcript
from tests.faults.scale import LONG
from tests.support.zookeeper_server import zookeeper_missing

pytestmark = pytest.mark.skipif(zookeeper_missing() is not None, reason=str(zookeeper_missing()))

_KEPT = Path(__file__).with_name("zk_edge_cases.txt")
_REWRITE = bool(os.environ.get("QUORACY_REWRITE"))


_ON_CELL = pytest.param(ON_CELL, marks=pytest.mark.faults)


@pytest.fixture(scope="module", params=["memory:", _ON_CELL] if LONG else ["memory:"])
def new_pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Lockstep]:
    with running_pair(tmp_path_factory.mktemp("edges"), engine=request.param) as lockstep:
        yield lockstep


@pytest.fixture
def pair(new_pair: Lockstep) -> Lockstep:
    """Three clients of both servers, and an empty tree."""
    new_pair.begin()
    new_pair.take_all([Connect(0), Connect(1), Connect(2)])
    new_pair.told.clear()
    return new_pair


@pytest.mark.parametrize("name", CASES)
def test_quoracy_answers_as_zookeeper_does(pair: Lockstep, name: str) -> None:
    pair.take_all(CASES[name])
    said = transcript(pair.told)
    if _REWRITE:
        cases = kept(_KEPT) if _KEPT.exists() else {}
        keep(_KEPT, {case: said if case == name else cases.get(case, "") for case in CASES})
    assert said == kept(_KEPT)[name]


def test_every_case_is_kept() -> None:
    assert list(kept(_KEPT)) == list(CASES)
