"""A disk that fails or is slow: the first error is the last word, and only writers ever wait."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from quoracy.engines.embedded.disk import log_allocation as log_length
from tests.faults.after_failure import check_after_failure, notes
from tests.faults.child import Child
from tests.faults.judge import Judge
from tests.faults.reports import Closed, Closing, Failed
from tests.faults.scale import LONG, rounds
from tests.faults.slow_disk import Options as SlowOptions
from tests.faults.tracing import SYNCS, Trace
from tests.faults.until_failure import Options

pytestmark = pytest.mark.faults

# After so many commits they are put into the tables; the syncs of that are another thread's.
_FOLD = 4096
# The first syncs are those of the new log, of its directory (SQLite lets that one fail) and of the
# leases that the child needs.
_FIRST = 10


def _prepared(path: Path) -> Path:
    """A store that was made before anything fails."""
    asyncio.run(Judge().judge(path, [], random.Random(0)))
    return path


def _moments(rng: random.Random) -> list[int]:
    near_fold = [rng.randint(_FOLD - 4, _FOLD + 8) for _ in range(rounds(0, 12))]
    return [*(rng.randint(_FIRST, 30) for _ in range(rounds(2, 15))), *near_fold]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("repeated", [False, True], ids=["once", "from then on"])
def test_a_sync_that_fails_is_never_tried_again(
    tmp_path: Path, strace: str, rng: random.Random, repeated: bool
) -> None:
    for number, moment in enumerate(_moments(rng)):
        path = _prepared(tmp_path / f"store-{number}.db")
        inject = f"error=EIO:when={moment}{'+' if repeated else ''}"
        trace = Trace(strace, tmp_path / f"strace-{number}.log", calls=SYNCS, inject=inject)
        options = Options(str(path), writers=1, value_bytes=10)
        with Child("until_failure", options, under=trace.command) as child:
            child.wait_for_note("asked")
            check_after_failure(child.reports)
            assert _syncs_after_failure(trace, path) == [], "it synced again"
            child.tell("close")
            child.wait_for(Closed)
            child.end()
        asyncio.run(Judge().judge(path, child.reports, rng))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("repeated", [False, True], ids=["once", "from then on"])
def test_commits_that_cannot_be_put_into_the_tables_stop_writing(
    tmp_path: Path, strace: str, rng: random.Random, repeated: bool
) -> None:
    for number in range(rounds(1, 12)):
        path = _prepared(tmp_path / f"store-{number}.db")
        inject = f"error=EIO:when={rng.randint(8, 25)}{'+' if repeated else ''}"
        tables = (path, Path(f"{path}-wal"))
        log = tmp_path / f"strace-{number}.log"
        trace = Trace(strace, log, calls=SYNCS, inject=inject, only=tables)
        options = Options(str(path), writers=4, value_bytes=10, log_segment_bytes=5000)
        with Child("until_failure", options, under=trace.command) as child:
            child.wait_for_note("asked")
            check_after_failure(child.reports)
            assert _syncs_after_failure(trace, path) == [], "it synced again"
            child.tell("close")
            child.wait_for(Closed)
            child.end()
        assert any(call["result"] == "-1" for call in trace.calls()), "nothing failed"
        # All that was acknowledged is in the commit log.
        asyncio.run(Judge().judge(path, child.reports, rng))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
def test_a_write_that_fails_is_the_last(
    tmp_path: Path, strace: str, rng: random.Random, error: str
) -> None:
    for number in range(rounds(1, 12)):
        path = _prepared(tmp_path / f"store-{number}.db")
        # One write a commit; those into the tables are another thread's.
        inject = f"error={error}:when={rng.randint(30, 60)}+"
        trace = Trace(strace, tmp_path / f"strace-{number}.log", calls="pwrite64", inject=inject)
        segment_bytes = rng.choice([4000, log_length.SEGMENT_BYTES]) if LONG else 4000
        options = Options(
            str(path),
            writers=rng.choice([1, 4]),
            value_bytes=10,
            lengthen_log=False,
            log_segment_bytes=segment_bytes,
        )
        with Child("until_failure", options, under=trace.command) as child:
            child.wait_for_note("asked")
            check_after_failure(child.reports)
            child.tell("close")
            child.wait_for(Closed)
            child.end()
        asyncio.run(Judge().judge(path, child.reports, rng))


@pytest.mark.timeout(900)
def test_killed_after_an_io_error_it_loses_nothing(
    tmp_path: Path, strace: str, rng: random.Random
) -> None:
    for number in range(rounds(1, 15)):
        path = _prepared(tmp_path / f"store-{number}.db")
        inject = f"error=EIO:when={rng.randint(_FIRST, 40)}"
        trace = Trace(strace, tmp_path / f"strace-{number}.log", calls=SYNCS, inject=inject)
        with Child("until_failure", Options(str(path), value_bytes=10), under=trace.command) as child:
            child.wait_for(Failed)
            child.kill()
            child.check_killed()
        asyncio.run(Judge().judge(path, child.reports, rng))


def test_reads_and_events_on_a_slow_disk(tmp_path: Path, strace: str) -> None:
    """Reads do not wait for the disk, nor run ahead of it; writers share its syncs."""
    path = _prepared(tmp_path / "store.db")
    trace = Trace(strace, tmp_path / "strace.log", calls=SYNCS, inject="delay_enter=100000")
    options = SlowOptions(str(path), writers=64, puts_each=5)
    with Child("slow_disk", options, under=trace.command) as child:
        child.wait_for(Closing)
        child.wait_for(Closed)
        child.end()
    told = notes(child.reports)
    assert told["reads while the put waited"].number >= 10
    assert told["reads or events ahead of the disk"].number == 0
    assert told["read after the put"].text == "after"
    assert told["event after the put"].text == "after"
    assert told["keys"].number == 64
    # 320 puts, five after another by each writer, in two groups that take turns: ten commits, and some
    # for those that came between.
    assert told["commits"].number <= 3 * options.puts_each
    syncs = [call for call in trace.calls() if str(path) in call["arguments"]]
    assert len(syncs) <= 3 * options.puts_each + 12, "more syncs than commits need"


def test_the_loop_never_waits_for_a_sync(tmp_path: Path, strace: str) -> None:
    """Not for that of a commit, nor for those of putting commits into the tables."""
    path = tmp_path / "store.db"
    trace = Trace(strace, tmp_path / "strace.log", calls=SYNCS)
    options = SlowOptions(str(path), writers=1, puts_each=5 * _FOLD // 4)
    with Child("slow_disk", options, under=trace.command) as child:
        child.wait_for(Closed)
        child.end()
    syncs = [call for call in trace.calls() if str(path) in call["arguments"]]
    assert len(syncs) > options.puts_each
    assert any(str(path) + "-wal>" in call["arguments"] for call in syncs), (
        "nothing was put into the tables"
    )
    assert str(child.pid) not in {call["pid"] for call in syncs}


def _syncs_after_failure(trace: Trace, path: Path) -> list[str]:
    """The syncs of the store's files that came after one of the same file had failed."""
    failed: set[str] = set()
    again: list[str] = []
    for call in trace.calls():
        file = call["arguments"]
        if str(path) not in file:
            continue
        if file in failed:
            again.append(call[0])
        if call["result"] == "-1":
            failed.add(file)
    return again
