"""Killed exactly at a system call: each write, sync, truncation and removal of a file is a point."""

from __future__ import annotations

import asyncio
import random
import shutil
from pathlib import Path

import pytest

from quoracy.engines.embedded.disk import log_allocation as log_length
from quoracy.engines.opening import open_embedded
from tests.faults.child import Child
from tests.faults.judge import Judge
from tests.faults.scale import LONG
from tests.faults.tracing import CHANGES, Trace
from tests.faults.workload import Options

pytestmark = pytest.mark.faults


def _points(rng: random.Random, *, first: list[int], count: int) -> list[int]:
    """Every point in a long run, some in a short one."""
    return list(range(1, 160)) if LONG else sorted({*first, *rng.sample(range(1, 160), count)})


def _run_up_to(point: int, strace: str, log: Path, options: Options) -> Child:
    """Run the workload, killed when a thread makes its call number `point` that changes a file."""
    trace = Trace(strace, log, calls=CHANGES, inject=f"signal=SIGKILL:when={point}")
    with Child("workload", options, under=trace.command) as child:
        child.hear_all()
        child.check_killed()
    return child


@pytest.mark.timeout(900)
def test_a_store_killed_while_it_is_made_can_be_opened(
    tmp_path: Path, strace: str, rng: random.Random
) -> None:
    for point in _points(rng, first=[1, 2, 3, 5], count=3):
        path = tmp_path / f"fresh-{point}" / "store.db"
        options = Options(
            str(path),
            seed=rng.getrandbits(32),
            round=1,
            tasks=1,
            operations_max=8,
            lengthen_log=point % 2 == 0,
            log_segment_bytes=2000,
        )
        child = _run_up_to(point, strace, tmp_path / "strace.log", options)
        try:
            asyncio.run(Judge().judge(path, child.reports, rng))
        except Exception as error:
            error.add_note(f"killed at file-changing call {point} of a thread, on a new store")
            raise
        shutil.rmtree(path.parent)


@pytest.mark.timeout(900)
def test_a_store_killed_at_any_system_call_loses_nothing(
    tmp_path: Path, strace: str, rng: random.Random
) -> None:
    template = tmp_path / "template" / "store.db"
    judge = Judge()
    options = Options(str(template), seed=rng.getrandbits(32), round=1, tasks=2, operations_max=80)
    with Child("workload", options) as child:
        child.end()
    # A history worth compacting: the runs below purge it, and give its space back, at once.
    asyncio.run(judge.judge(template, child.reports, rng))
    for point in _points(rng, first=[1, 2], count=4):
        path = tmp_path / f"grown-{point}" / "store.db"
        shutil.copytree(template.parent, path.parent)
        again = Options(
            str(path),
            seed=rng.getrandbits(32),
            round=2,
            tasks=1,
            operations_max=rng.choice([5, 20]),
            revisions_max=50,
            lengthen_log=False,
            log_segment_bytes=rng.choice([2000, log_length.SEGMENT_BYTES]),
        )
        second = _run_up_to(point, strace, tmp_path / "strace.log", again)
        try:
            asyncio.run(judge.twin().judge(path, second.reports, rng))
        except Exception as error:
            error.add_note(f"killed at file-changing call {point} of a thread, on a grown store")
            raise
        shutil.rmtree(path.parent)


async def test_a_file_that_holds_nothing_yet_becomes_a_store(tmp_path: Path) -> None:
    (tmp_path / "empty.db").touch()
    async with open_embedded(f"sqlite:{tmp_path / 'empty.db'}") as store:
        assert (await store.put(b"k", b"v")).revision == 2
