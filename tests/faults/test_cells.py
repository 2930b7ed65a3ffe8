"""Cells under faults: three or five hosts, real etcd, real clients; all promises judged each time.

`python -m tests.cells` runs the same from the command line, with a table.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

from tests.cells.cell import Cell, Setup, etcd_program, faketime_library
from tests.cells.network import why_no_network
from tests.cells.outage import measure
from tests.cells.planted import BUGS
from tests.cells.running import Report, run_schedule
from tests.cells.schedule import KINDS, Plan, make_plan
from tests.faults.scale import LONG, rounds

pytestmark = pytest.mark.faults

# For a test that has seconds: over soon, and each of them hurts.
_QUICK = ("kill-node", "kill-member", "kill-host", "cut-node", "cut-member", "cut-host", "one-way-out")
_SCHEDULES_MAX = 5

# What makes a bug show: most are only seen when something else goes wrong.
_SHOWN_BY = {
    "stale-read": ("slow", "cut-member"),
    "early-answer": ("slow", "cut-member"),
    "watch-repeats": ("kill-node",),
    "feed-skips": ("kill-member",),
    "feed-stops": ("kill-member",),
    "unkept-sessions": ("cut-clients",),
    "eternal-sessions": ("stop-holder",),
}


@pytest.fixture(autouse=True)
def _hosts() -> None:
    why_not = why_no_network()
    if why_not is not None:
        pytest.skip(why_not)
    try:
        etcd_program("3.4")
    except LookupError as error:
        pytest.skip(f"{error}, and 3.5.1 loses data when it is killed (etcd#13766)")


def _kinds() -> list[str]:
    if not LONG:
        return list(_QUICK)
    return [kind for kind in KINDS if kind != "clock-step" or faketime_library() is not None]


def _run(plan: Plan, setup: Setup, directory: Path) -> Report:
    directory.mkdir()
    return run_schedule(plan, setup.for_plan(plan), directory)


@pytest.mark.timeout(14_400 if LONG else 120)
def test_a_cell_keeps_its_promises_whatever_breaks(seed: int, tmp_path: Path) -> None:
    for number in range(rounds(1, 200)):
        setup = Setup()
        hosts = Cell.host_names(setup)[:-1]
        plan = make_plan(
            seed + number, hosts, kinds=_kinds(), faults_count=None if LONG else 1, lingers=LONG
        )
        report = _run(plan, setup, tmp_path / str(number))
        assert not report.problems, f"seed {seed + number}: {plan}\n" + "\n".join(report.problems)
        assert report.checked > 100, f"seed {seed + number}: {plan}: hardly anybody was served"


@pytest.mark.skipif(not LONG, reason="takes minutes: QUORACY_FAULTS=long")
@pytest.mark.timeout(14_400)
def test_five_hosts_keep_them_too(seed: int, tmp_path: Path) -> None:
    setup = Setup(hosts_count=5)
    for number in range(20):
        plan = make_plan(seed + number, Cell.host_names(setup)[:-1], kinds=_kinds())
        report = _run(plan, setup, tmp_path / str(number))
        assert not report.problems, f"seed {seed + number}: {plan}\n" + "\n".join(report.problems)


@pytest.mark.skipif(not LONG, reason="takes minutes: QUORACY_FAULTS=long")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_noticed(bug: str, seed: int, tmp_path: Path) -> None:
    setup = Setup(node=(sys.executable, "-m", "tests.cells.planted", bug))
    for number in range(_SCHEDULES_MAX):
        plan = make_plan(
            seed + number, Cell.host_names(setup)[:-1], kinds=_SHOWN_BY[bug], faults_count=3
        )
        if _run(plan, setup, tmp_path / str(number)).problems:
            return
    pytest.fail(f"nobody noticed in {_SCHEDULES_MAX} schedules")


@pytest.mark.skipif(not LONG, reason="takes minutes: QUORACY_FAULTS=long")
@pytest.mark.timeout(3600)
def test_service_comes_back_when_the_leader_is_killed(rng: random.Random, tmp_path: Path) -> None:
    """How soon is told by `python -m tests.cells.outage`; that it does is what is promised."""
    assert len(measure(9, tmp_path, seed=rng.getrandbits(32))) == 9
