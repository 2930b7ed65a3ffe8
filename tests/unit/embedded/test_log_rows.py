"""Rows made of what frames have: what goes in comes out, in order, and what is cut short is told."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quoracy.engines.embedded.committing.group import Batch
from quoracy.engines.embedded.disk.commit_log import CommitLog, changes_in
from quoracy.engines.embedded.disk.journal_file import row_checksum
from quoracy.engines.embedded.disk.log_rows import (
    ROW_BYTES,
    ROW_VERSIONS,
    FrameRow,
    FrameRows,
    decode_row,
)
from quoracy.store.model import KeyValue

_LOG = CommitLog((), id=7, sequence=0, segment_bytes=1 << 30)


def batches(sizes: list[list[int]], value: bytes = b"value") -> list[Batch]:
    """One batch for each list; in it, a revision for each number, with so many versions."""
    made, revision = [], 1
    for counts in sizes:
        batch = Batch()
        for count in counts:
            revision += 1
            batch.changes.append(
                tuple(KeyValue(b"%d" % at, value, revision, revision, 1, 0) for at in range(count))
            )
        made.append(batch)
    return made


def rows_of(made: list[Batch]) -> list[FrameRow]:
    rows = FrameRows()
    for number, batch in enumerate(made, 1):
        first, last = batch.changes[0][0].mod_revision, batch.changes[-1][-1].mod_revision
        changes = changes_in(_LOG.frame(batch), batch)
        rows.add(number, changes, first, last, batch.versions_count)
    return rows.take()


def versions_of(made: list[Batch]) -> list[KeyValue]:
    return [kv for batch in made for changes in batch.changes for kv in changes]


@given(
    st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=9), max_size=60),
    st.sampled_from([b"", b"value", b"." * 3000]),
)
def test_what_frames_have_is_in_the_rows_in_order(sizes: list[list[int]], value: bytes) -> None:
    made = batches(sizes, value)
    rows = rows_of(made)
    assert [kv for row in rows for kv in decode_row(row.blob)] == versions_of(made)
    for row in rows:
        versions = decode_row(row.blob)
        assert (row.first, row.last) == (versions[0].mod_revision, versions[-1].mod_revision)
        assert (row.count, row.checksum) == (len(versions), row_checksum(row.first, row.blob))


def test_a_row_ends_with_the_frame_that_fills_it() -> None:
    made = batches([[1]] * 2000)
    assert [row.count for row in rows_of(made)] == [ROW_VERSIONS] * 3 + [2000 - 3 * ROW_VERSIONS]
    made = batches([[1]] * 10, b"." * (ROW_BYTES // 2))
    assert [row.count for row in rows_of(made)] == [2] * 5


def test_nothing_is_no_row() -> None:
    rows = FrameRows()
    assert rows.take() == []
    assert rows_of(batches([[3]])) != []
    assert rows.take() == []


@pytest.mark.parametrize("beside", ["leases", "compact_revision", "meta"])
def test_of_a_frame_with_more_than_changes_it_has_the_changes(beside: str) -> None:
    (batch,) = batches([[2, 3]])
    batch.leases = [(5, 10.0)] if beside == "leases" else []
    batch.compact_revision = 2 if beside == "compact_revision" else None
    batch.meta = {"name": 1} if beside == "meta" else {}
    (row,) = rows_of([batch])
    assert list(decode_row(row.blob)) == versions_of([batch])


def test_a_row_of_versions_is_read_as_well() -> None:
    versions = tuple(versions_of(batches([[2], [1]])))
    assert decode_row(msgspec.msgpack.encode(versions)) == versions


def test_a_row_that_is_cut_short_is_told() -> None:
    (row,) = rows_of(batches([[2], [1], [3]]))
    whole = decode_row(row.blob)
    for end in range(len(row.blob)):
        try:
            versions = decode_row(row.blob[:end])
        except msgspec.DecodeError:
            continue
        # (Between two frames nothing tells but the checksum.)
        assert versions == whole[: len(versions)]
        assert end in _ends_of_frames(row.blob)


def _ends_of_frames(blob: bytes) -> set[int]:
    ends, at = {1}, 1
    while at < len(blob):
        at += 4 + int.from_bytes(blob[at : at + 4], "little")
        ends.add(at)
    return ends
