"""kill -9, again and again, on one store: what was acknowledged or seen is there, nothing by halves."""

from __future__ import annotations

import asyncio
import random
import shutil
import time
from pathlib import Path

import pytest

from quoracy.engines.embedded.disk import log_allocation as log_length
from tests.faults.child import Child
from tests.faults.judge import Judge
from tests.faults.reports import Acknowledged, Closing, Compact, Opened, Opening, Report
from tests.faults.scale import rounds
from tests.faults.workload import Options

pytestmark = pytest.mark.faults

_MOMENTS = ["opening", "opened", "working", "working", "working", "compacting", "closing"]


def _let_pass(seconds: float) -> None:
    # The moment of a kill is what these tests choose at random: no event marks it.
    time.sleep(seconds)


def _kill_at(moment: str, child: Child, rng: random.Random) -> None:
    """Let the child work up to a moment of this kind, then kill it."""
    child.wait_for(Opening)
    match moment:
        case "opening":
            _let_pass(rng.random() * 0.03)
        case "opened":
            child.wait_for(Opened)
            _let_pass(rng.random() * 0.005)
        case "working":
            child.wait_for(Opened)
            child.hear(rng.randint(1, 1500))
            _let_pass(rng.random() * 0.005)
        case "compacting":
            child.wait_for(Opened)
            child.hear(rng.randint(1, 500))
            while not _compacted(child.next(), child):
                pass
            _let_pass(rng.random() * 0.02)
        case "closing":
            child.wait_for(Opened)
            child.hear(rng.randint(1, 500))
            child.tell("close")
            child.wait_for(Closing)
            _let_pass(rng.random() * 0.01)
    child.kill()


def _compacted(report: Report | None, child: Child) -> bool:
    assert report is not None, "the child ended by itself"
    if not isinstance(report, Acknowledged):
        return False
    asked = (r for r in reversed(child.reports) if getattr(r, "id", None) == report.id)
    return any(isinstance(getattr(r, "operation", None), Compact) for r in asked)


def _copy(path: Path, to: Path) -> Path:
    """The crashed files as they are, log and all."""
    to.mkdir()
    for file in path.parent.glob(f"{path.name}*"):
        shutil.copy(file, to / file.name)
    return to / path.name


@pytest.mark.timeout(1500)
def test_nothing_acknowledged_or_seen_is_lost_by_kill_9(tmp_path: Path, rng: random.Random) -> None:
    path = tmp_path / "store.db"
    judge = Judge()
    for number in range(1, rounds(18, 1000) + 1):
        options = Options(
            str(path),
            seed=rng.getrandbits(32),
            round=number,
            tasks=rng.choice([1, 2, 4]),
            value_bytes_max=rng.choice([50, 200, 3000]),
            # One that is never full in so short a life, and one that begins anew all the time.
            log_segment_bytes=rng.choice([log_length.SEGMENT_BYTES, 10_000]),
        )
        moment = "working" if number == 1 else rng.choice(_MOMENTS)
        with Child("workload", options) as child:
            _kill_at(moment, child, rng)
            child.check_killed()
        # Either the test repairs what the crash left, or the next child has to do so itself.
        judged = path if rng.random() < 0.5 else _copy(path, tmp_path / f"copy-{number}")
        try:
            asyncio.run(judge.judge(judged, child.reports, rng))
        except Exception as error:
            error.add_note(f"in round {number}, killed while {moment}, judged at {judged}")
            raise
        if judged != path:
            shutil.rmtree(judged.parent)
    assert judge.model.revision > 1000, "too little was written to prove anything"
    assert judge.model.compact_revision > 100, "compaction never ran"
