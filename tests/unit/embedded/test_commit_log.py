"""The commit log alone: every frame comes back, a torn one is the end, a damaged one is told."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quoracy.engines.embedded.committing.group import Batch
from quoracy.engines.embedded.disk import log_allocation as log_length
from quoracy.engines.embedded.disk.commit_log import (
    CommitLog,
    LogDamaged,
    create_log_file,
    frames_after,
)
from quoracy.store.model import KeyValue

_ID = 0x1234_5678_9ABC_DEF0
_SEGMENT = 1000


class Written:
    """A log in memory, with the journal's part played by a number: how far it has been folded."""

    def __init__(self, segment_bytes: int = _SEGMENT) -> None:
        self.segment_bytes = segment_bytes
        self.log = CommitLog((), id=_ID, sequence=0, segment_bytes=segment_bytes)
        self.data = bytearray(2 * segment_bytes)
        self.places: list[tuple[int, int]] = []  # where the frames begin and end
        self.in_tables = 0
        self.known = 0  # to the last frame: what was acknowledged when it was made

    def write(self, number: int, size: int = 40, *, acknowledge: bool = True) -> None:
        """Write the frame of that number, folding all before it if there is no room."""
        self.known = self.log.acknowledged
        frame = self.log.frame(batch_of(number, size))
        place = self.log.place(len(frame))
        if place < 0:
            self.acknowledge()
            self.fold()
            place = self.log.place(len(frame))
        self.data[place : place + len(frame)] = frame
        self.places.append((place, place + len(frame)))
        if acknowledge:
            self.acknowledge()

    def acknowledge(self) -> None:
        self.log.acknowledged = self.log.sequence

    def fold(self) -> None:
        self.in_tables = self.log.acknowledged
        self.log.folded(self.in_tables)

    def torn(self, *numbers: int, rng: random.Random) -> bytes:
        """The log with these frames damaged, each from some place on."""
        data = bytearray(self.data)
        for number in numbers:
            start, end = self.places[number - 1]
            at = rng.randrange(start, end)
            data[at:end] = bytes(byte ^ 0xFF for byte in data[at:end])
        return bytes(data)

    def found(self, data: bytes | None = None) -> list[int]:
        """The numbers of the commits that come back."""
        batches = frames_after(
            bytes(self.data) if data is None else data,
            id=_ID,
            sequence=self.in_tables,
            segment_bytes=self.segment_bytes,
        )
        return [batch.changes[0][0].mod_revision for batch in batches]


def batch_of(number: int, size: int) -> Batch:
    batch = Batch()
    batch.changes.append((KeyValue(b"k", b"v" * size, number, number, 1),))
    return batch


def test_a_batch_comes_back_as_it_was() -> None:
    written = Written()
    batch = batch_of(5, 3)
    batch.changes.append((KeyValue(b"a", b"", 0, 6, 0), KeyValue(b"b", b"\xff", 6, 6, 1, 9)))
    batch.leases = [(7, 2.5), (8, None)]
    batch.compact_revision = 4
    batch.meta = {"timeline": b"\x00\x01"}
    frame = written.log.frame(batch)
    written.data[: len(frame)] = frame
    (found,) = frames_after(bytes(written.data), id=_ID, sequence=0, segment_bytes=_SEGMENT)
    assert (found.changes, found.leases) == (batch.changes, batch.leases)
    assert (found.compact_revision, found.meta) == (4, batch.meta)


@given(
    st.lists(st.tuples(st.integers(0, 600), st.booleans()), max_size=60),
    st.randoms(use_true_random=False),
)
def test_whatever_is_written_and_folded_what_is_not_in_the_tables_comes_back(
    steps: list[tuple[int, bool]], rng: random.Random
) -> None:
    written = Written()
    for number, (size, fold) in enumerate(steps, 1):
        written.write(number, size)
        if fold:
            written.fold()
        assert written.found() == list(range(written.in_tables + 1, number + 1))
    if not written.places or written.in_tables == len(steps):
        return
    # Torn anywhere within the last frame, which was then not acknowledged, the rest is there.
    torn = written.torn(len(steps), rng=rng)
    assert written.found(torn) == list(range(written.in_tables + 1, len(steps)))


@given(
    st.lists(st.tuples(st.integers(0, 300), st.booleans()), min_size=1, max_size=40),
    st.randoms(use_true_random=False),
)
def test_of_two_frames_on_their_way_either_may_be_lost_and_nothing_that_was_acknowledged(
    steps: list[tuple[int, bool]], rng: random.Random
) -> None:
    written = Written()
    log = written.log
    for number, (size, fold) in enumerate(steps, 1):
        if number - log.acknowledged > 2:
            log.acknowledged += 1  # the older of the two; the younger may have been synced before it
        written.write(number, size, acknowledge=False)
        if fold:
            written.fold()
    under_way = range(log.acknowledged + 1, len(steps) + 1)
    for lost in ([], [under_way[0]], [under_way[-1]], list(under_way)):
        expected = range(written.in_tables + 1, min([*lost, len(steps) + 1]))
        assert written.found(written.torn(*lost, rng=rng)) == list(expected)
    # But what was acknowledged, and is known to be by a frame behind it, is missed.
    if written.known > written.in_tables:
        with pytest.raises(LogDamaged, match=f"commit {written.known} is missing"):
            written.found(written.torn(written.known, rng=rng))


def test_a_segment_is_not_written_over_before_it_is_folded() -> None:
    written = Written()
    log = written.log
    placed = 0
    while log.place(300) >= 0:
        placed += 1
    assert placed == 6  # three in each segment
    log.folded(2)
    assert log.place(300) < 0
    log.folded(3)  # all of the first segment
    assert log.place(300) == 0
    assert log.fits(_SEGMENT)
    assert not log.fits(_SEGMENT + 1)


@pytest.mark.parametrize("damaged", range(1, 8))
def test_damage_before_the_last_frame_is_told(damaged: int) -> None:
    written = Written()
    for number in range(1, 9):
        written.write(number, 120)  # five of them in the first segment
    start, end = written.places[damaged - 1]
    for at in range(end - 1, start, -7):
        data = bytearray(written.data)
        data[at] ^= 0x10
        with pytest.raises(LogDamaged, match="commit"):
            written.found(bytes(data))


def test_frames_of_another_log_are_not_taken(tmp_path: Path) -> None:
    written = Written()
    written.write(1)
    assert frames_after(bytes(written.data), id=_ID + 1, sequence=0, segment_bytes=_SEGMENT) == []


def test_a_log_that_is_cut_short_has_what_is_left() -> None:
    written = Written()
    for number in (1, 2, 3):
        written.write(number)
    assert written.found(bytes(written.data[: written.places[1][1]])) == [1, 2]
    assert written.found(b"") == []


def test_on_a_disk_with_little_room_the_file_takes_what_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_length, "FREE_BYTES_MIN", 1 << 62)
    create_log_file(tmp_path / "log")
    assert (tmp_path / "log").stat().st_size == 0
    monkeypatch.undo()
    create_log_file(tmp_path / "log")
    assert (tmp_path / "log").stat().st_size == 2 * log_length.SEGMENT_BYTES
    assert (tmp_path / "log").stat().st_mode & 0o077 == 0


def test_a_log_that_was_lengthened_has_more_free_segments() -> None:
    log = Written().log
    while log.place(400) >= 0:
        pass
    assert (log.segments_count, log.free_count, log.sequence) == (2, 0, 4)
    log.lengthened(4)
    log.lengthened(3)  # told late
    assert (log.segments_count, log.free_count) == (4, 2)
    assert [log.place(400) for _ in range(5)] == [2000, 2400, 3000, 3400, -1]
    assert [log.last_of_oldest(count) for count in (1, 2, 9)] == [2, 4, 6]
    log.folded(log.last_of_oldest(2))
    assert log.free_count == 2
    assert log.place(400) == 0


@given(st.integers(3, 6), st.lists(st.integers(0, 600), min_size=1, max_size=60))
def test_what_is_in_any_segment_comes_back(segments_count: int, sizes: list[int]) -> None:
    written = Written()
    written.data = bytearray(segments_count * _SEGMENT)
    written.log.lengthened(segments_count)
    for number, size in enumerate(sizes, 1):
        written.write(number, size)
        assert written.found() == list(range(written.in_tables + 1, number + 1))
