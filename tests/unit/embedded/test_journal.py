"""The journal alone: what it was given comes back, what nobody needs goes, in slices."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from quoracy.engines.embedded.committing.group import Batch
from quoracy.engines.embedded.disk.commit_log import changes_in
from quoracy.engines.embedded.disk.journal import SLICE_S, Journal
from quoracy.engines.embedded.disk.journal_file import FORMAT, set_meta, unreadable
from quoracy.engines.embedded.disk.log_allocation import SEGMENT_BYTES
from quoracy.engines.embedded.disk.log_rows import FrameRows
from quoracy.engines.embedded.memory.versions import VersionName
from quoracy.errors import DataUnreadable, FormatUnknown, StorageFailed
from quoracy.store.model import KeyValue


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "q.db"


@pytest.fixture
def journal(path: Path) -> Iterator[Journal]:
    journal = Journal.open(path)
    yield journal
    journal.close()


def version(revision: int, key: bytes = b"k", value: bytes = b"v" * 100) -> KeyValue:
    return KeyValue(key, value, revision, revision, 1)


def name(revision: int, key: bytes = b"k") -> VersionName:
    return revision, key, False


def batch_of(*changes: tuple[KeyValue, ...]) -> Batch:
    batch = Batch()
    batch.changes.extend(changes)
    return batch


def commit(journal: Journal, *changes: tuple[KeyValue, ...]) -> None:
    journal.commit(batch_of(*changes))


def write(journal: Journal, batch: Batch) -> None:
    """Into the commit log, as a store that runs does it."""
    frame = journal.log.frame(batch)
    os.pwrite(journal.log.files[0], frame, journal.log.place(len(frame)))


@contextmanager
def no_file_longer_than(size: int) -> Iterator[None]:
    """As on a full disk: what is written beyond that is refused."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def contents(journal: Journal) -> list[KeyValue]:
    return list(itertools.chain.from_iterable(journal.read()))


def clean_all(journal: Journal, names: list[VersionName]) -> int:
    slices, more = 0, True
    while more:
        cleaned = journal.clean(names)
        names, more = names[cleaned.done :], cleaned.more
        slices += 1
    return slices


def test_versions_come_back_in_the_order_they_were_written(path: Path) -> None:
    journal = Journal.open(path)
    commit(journal, (version(2, b"z"), version(2, b"a")), (version(3, b"m"),))
    commit(journal, (version(4, b"b"),))
    journal.close()
    again = Journal.open(path)
    found = [(kv.mod_revision, kv.key) for kv in contents(again)]
    again.close()
    assert found == [(2, b"z"), (2, b"a"), (3, b"m"), (4, b"b")]


def test_a_commit_of_any_size_comes_back_whole(journal: Journal) -> None:
    changes = [(version(r, b"%d" % r, b"x" * (r % 7 * 3000)),) for r in range(2, 1500)]
    commit(journal, *changes)
    assert contents(journal) == [kv for (kv,) in changes]


@pytest.mark.parametrize("per_commit", [1, 3, 200])
def test_what_is_cleaned_is_gone_and_the_rest_stays(journal: Journal, per_commit: int) -> None:
    revisions = range(2, 602)
    for first in revisions[::per_commit]:
        commit(journal, *((version(r, b"%d" % r),) for r in range(first, first + per_commit)))
    gone = [name(r, b"%d" % r) for r in revisions if r % 4]
    clean_all(journal, gone)
    kept = {kv.mod_revision for kv in contents(journal)}
    assert kept >= {r for r in revisions if not r % 4}
    # A row is written anew when half of it is gone: at most as much is kept for nothing as for use.
    assert len(kept) <= 2 * len([r for r in revisions if not r % 4])
    clean_all(journal, [name(r, b"%d" % r) for r in revisions if not r % 4])
    assert contents(journal) == []


def test_a_row_shared_by_one_revision_keeps_the_versions_that_are_needed(journal: Journal) -> None:
    commit(journal, tuple(version(2, b"%d" % i) for i in range(10)))
    clean_all(journal, [name(2, b"%d" % i) for i in range(9)])
    assert [kv.key for kv in contents(journal)] == [b"9"]


def test_cleaning_takes_a_slice_at_a_time(journal: Journal) -> None:
    for revision in range(2, 402):
        commit(journal, (version(revision),))
    # A clock on which every look takes a fifth of a slice.
    readings = itertools.count()
    slices, names, more = 0, [name(r) for r in range(2, 402)], True
    while more:
        cleaned = journal.clean(names, now=lambda: next(readings) * SLICE_S / 5)
        names, more = names[cleaned.done :], cleaned.more
        slices += 1
        commit(journal, (version(1000 + slices, b"between"),))  # others get their turn
    assert slices > 1
    assert {kv.key for kv in contents(journal)} == {b"between"}


def test_space_is_given_back_to_the_file_system(journal: Journal, path: Path) -> None:
    for revision in range(2, 502):
        commit(journal, (version(revision, value=b"x" * 10_000),))
    before = journal.size().file_bytes
    clean_all(journal, [name(r) for r in range(2, 502)])
    while journal.give_back():
        pass
    assert journal.size().file_bytes < before / 10
    journal._checkpoint("TRUNCATE")
    assert path.stat().st_size < before / 10


def test_after_the_first_error_nothing_is_written_any_more(journal: Journal) -> None:
    commit(journal, (version(2),))
    with pytest.raises(StorageFailed, match="interrupted"):
        journal._db.set_progress_handler(lambda: 1, 1)
        commit(journal, (version(3),))
    journal._db.set_progress_handler(None, 0)
    for _ in range(2):
        with pytest.raises(StorageFailed):
            commit(journal, (version(4),))
    assert [kv.mod_revision for kv in contents(journal)] == [2]


def test_nobody_else_can_read_the_file_meanwhile(journal: Journal, path: Path) -> None:
    commit(journal, (version(2),))
    other = sqlite3.connect(path, timeout=0)
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        other.execute("SELECT * FROM log").fetchall()
    other.close()


def test_a_deletion_goes_last(journal: Journal) -> None:
    # Three versions in one row, so that the first lingers there when only it is gone.
    commit(journal, (version(2, b"a"),), (version(3, b"b"),), (version(4, b"c"),))
    commit(journal, (KeyValue(b"a", b"", 0, 5, 0),))
    clean_all(journal, [name(2, b"a"), (5, b"a", True)])
    # Without the deletion, "a" would be back after a restart.
    assert {(kv.mod_revision, kv.key) for kv in contents(journal)} >= {(2, b"a"), (5, b"a")}
    clean_all(journal, [name(3, b"b")])
    assert [(kv.mod_revision, kv.key) for kv in contents(journal)] == [(4, b"c")]


def test_a_deletion_goes_with_what_it_deleted_if_they_share_a_row(journal: Journal) -> None:
    gone = KeyValue(b"a", b"", 0, 4, 0)
    commit(journal, (version(2, b"a"),), (version(3, b"b"),), (gone,))
    clean_all(journal, [name(2, b"a"), (4, b"a", True)])
    assert [(kv.mod_revision, kv.key) for kv in contents(journal)] == [(3, b"b")]


def test_rows_that_nobody_needs_go_and_their_neighbours_stay(journal: Journal) -> None:
    for first in range(2, 42, 4):  # rows of four, and rows of one
        commit(journal, *[(version(first + i, b"%d" % (first + i)),) for i in range(3)])
        commit(journal, (version(first + 3, b"%d" % (first + 3)),))
    kept = {10, 17, 33}
    clean_all(journal, [name(r, b"%d" % r) for r in range(2, 42) if r not in kept])
    assert [kv.mod_revision for kv in contents(journal)] == sorted(kept)


def test_the_commit_log_has_its_length_before_the_first_commit(journal: Journal, path: Path) -> None:
    assert Path(f"{path}-log").stat().st_size == 2 * SEGMENT_BYTES


def test_a_store_that_was_closed_is_one_file(path: Path) -> None:
    journal = Journal.open(path)
    commit(journal, (version(2),))
    journal.close()
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_what_is_in_the_commit_log_is_in_the_tables_when_it_is_opened_again(path: Path) -> None:
    journal = Journal.open(path)
    write(journal, batch_of((version(2),)))
    late = batch_of((version(3, b"a"), version(3, b"b")))
    late.leases.extend([(7, 10.0), (8, 5.0), (7, None)])
    late.compact_revision = 2
    late.meta["timeline"] = b"noted"
    write(journal, late)
    journal.abandon()
    for _ in range(2):  # and again, when all of the log is in the tables
        again = Journal.open(path)
        assert [(kv.mod_revision, kv.key) for kv in contents(again)] == [
            (2, b"k"),
            (3, b"a"),
            (3, b"b"),
        ]
        assert again.leases() == [(8, 5.0)]
        assert (again.revision_meta("compact_revision"), again.meta("timeline")) == (2, b"noted")
        assert again.check_integrity() == []
        again.abandon()


def test_what_a_crash_left_behind_a_gap_never_comes_back(path: Path) -> None:
    journal = Journal.open(path)
    journal.log.place(len(journal.log.frame(batch_of((version(2),)))))  # it did not get to the disk
    write(journal, batch_of((version(3),)))
    journal.abandon()
    again = Journal.open(path)
    assert contents(again) == []
    # Of the same length and number as the one that was lost: what lies behind it would be the next.
    write(again, batch_of((version(2),)))
    again.abandon()
    once_more = Journal.open(path)
    assert [kv.mod_revision for kv in contents(once_more)] == [2]
    once_more.close()


def test_what_is_in_the_tables_already_is_not_taken_from_the_commit_log_again(path: Path) -> None:
    journal = Journal.open(path)
    write(journal, batch_of((version(2),)))
    journal.commit(batch_of((version(2),)), sequence=journal.log.sequence)
    clean_all(journal, [name(2)])
    write(journal, batch_of((version(3),)))
    journal.abandon()
    again = Journal.open(path)
    assert [kv.mod_revision for kv in contents(again)] == [3]
    again.close()


def test_without_its_commit_log_a_store_is_not_opened(path: Path) -> None:
    journal = Journal.open(path)
    write(journal, batch_of((version(2),)))
    journal.abandon()
    log = Path(f"{path}-log")
    kept = log.read_bytes()
    log.unlink()
    with pytest.raises(DataUnreadable, match=r"q\.db-log is missing"):
        Journal.open(path)
    log.write_bytes(kept)
    again = Journal.open(path)
    assert [kv.mod_revision for kv in contents(again)] == [2]
    again.close()


@pytest.mark.skipif(sys.platform == "win32", reason="no limits on files there")
def test_without_room_for_what_a_crash_left_in_the_commit_log_it_says_so(path: Path) -> None:
    journal = Journal.open(path)
    write(journal, batch_of((version(2),)))
    crashed = path.with_name("crashed.db")
    for suffix in ("", "-wal", "-log"):  # (to close it would fold SQLite's log)
        shutil.copy(f"{path}{suffix}", f"{crashed}{suffix}")
    journal.close()
    size = Path(f"{crashed}-wal").stat().st_size
    with no_file_longer_than(size), pytest.raises(DataUnreadable, match=r"disk is full.*Make room"):
        Journal.open(crashed)
    journal = Journal.open(crashed)
    assert contents(journal) == [version(2)]
    journal.close()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EIO])
def test_what_the_disk_does_is_not_taken_for_damage(path: Path, number: int) -> None:
    assert "Make room or repair the disk" in str(unreadable(path, OSError(number, "as it happens")))


def test_the_commit_log_of_another_store_means_nothing(path: Path) -> None:
    other = Journal.open(path.with_name("other.db"))
    write(other, batch_of((version(9),)))
    other.abandon()
    path.with_name("other.db-log").rename(f"{path}-log")
    journal = Journal.open(path)
    write(journal, batch_of((version(2),)))
    journal.abandon()
    again = Journal.open(path)
    assert [kv.mod_revision for kv in contents(again)] == [2]
    again.close()


@pytest.mark.parametrize("format", [FORMAT - 1, FORMAT + 1])
def test_a_store_of_another_format_is_refused_and_stays_as_it_is(path: Path, format: int) -> None:
    journal = Journal.open(path)
    commit(journal, (version(2),))
    journal.close()
    db = sqlite3.connect(path)
    set_meta(db, "format", format)
    db.commit()
    db.close()
    before = path.read_bytes()
    with pytest.raises(FormatUnknown) as refused:
        Journal.open(path)
    assert (refused.value.found, refused.value.known) == (format, FORMAT)
    assert path.read_bytes() == before


@pytest.mark.parametrize(("value_bytes", "is_held"), [(100, True), (5000, False)])
def test_large_values_are_not_held(journal: Journal, value_bytes: int, is_held: bool) -> None:
    rows = FrameRows()
    for revision in (2, 3, 4):
        batch = batch_of((version(revision, value=b"v" * value_bytes),))
        changes = changes_in(journal.log.frame(batch), batch)
        write(journal, batch)
        rows.add(journal.log.sequence, changes, revision, revision, 1)
    journal.hold(Batch(), rows.take(), journal.log.sequence)
    found = [kv.mod_revision for kv in contents(journal)]
    assert found == ([] if is_held else [2, 3, 4])
    journal.commit(Batch(), sequence=journal.log.sequence)
    assert [kv.mod_revision for kv in contents(journal)] == [2, 3, 4]


def test_what_was_held_is_inserted_a_large_row_at_a_time(journal: Journal) -> None:
    """SQLite copies what it is given with the interpreter lock, and the loop waits meanwhile."""
    rows = FrameRows()
    revisions = range(2, 600)
    for revision in revisions:
        batch = batch_of((version(revision, value=b"v" * 900),))
        changes = changes_in(journal.log.frame(batch), batch)
        write(journal, batch)
        journal.log.acknowledged = journal.log.sequence
        rows.add(journal.log.sequence, changes, revision, revision, 1)
    held = rows.take()
    journal.hold(Batch(), held, journal.log.sequence)
    statements: list[str] = []
    journal._db.set_trace_callback(lambda sql: statements.append(sql[:30]))
    journal.settle(journal.log.sequence)
    inserts = [sql for sql in statements if sql.startswith("INSERT OR REPLACE INTO log")]
    assert len(inserts) == len(held) > 5
    assert [kv.mod_revision for kv in contents(journal)] == list(revisions)
