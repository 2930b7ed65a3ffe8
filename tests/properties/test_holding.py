"""Behind a commit log, whatever is held, swept, settled and synced: when power fails, nothing is lost,
and nothing comes back that was gone.

As in `test_cleaning`, but commits are frames of a log whose segments are small and used again, and a
crash takes all of the tables that was not synced.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from hypothesis import example, given, settings
from hypothesis import strategies as st

from quoracy.engines.embedded.committing.group import Batch
from quoracy.engines.embedded.disk import log_allocation as log_length
from quoracy.engines.embedded.disk.commit_log import changes_in
from quoracy.engines.embedded.disk.log_rows import FrameRows
from tests.properties.test_cleaning import Commit, Compact, Step, Subject, Sweep, Trim, steps


@dataclass(frozen=True)
class Lease:
    """Granted, or ended."""

    id: int
    granted: bool


@dataclass(frozen=True)
class Settle:
    """The oldest of what is held gets into the tables: so many segments of the log."""

    segments: int


@dataclass(frozen=True)
class Sync:
    """As it happens after a sweep."""


@dataclass(frozen=True)
class HandOver:
    """What is in the log is known to the journal."""


logged_steps = (
    steps
    | st.builds(Lease, st.integers(1, 3), st.booleans())
    | st.sampled_from([1, 2]).map(Settle)
    | st.just(Sync())
    | st.just(HandOver())
)
LoggedStep = Step | Lease | Settle | Sync | HandOver


class Logged(Subject):
    """A journal whose commits go to its log, and what there is of its tables when power fails."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.leases: dict[int, float] = {}
        self._begin()

    def _begin(self) -> None:
        self._rows, self._rest = FrameRows(), Batch()
        self._synced()

    def _synced(self) -> None:
        self._tables = [each.read_bytes() for each in self._files()]
        self.journal.log.folded(self.journal.safe_sequence)

    def _files(self) -> tuple[Path, Path]:
        return self.path, Path(f"{self.path}-wal")

    def take_logged(self, step: LoggedStep) -> None:
        match step:
            case Lease(id, granted):
                batch = Batch()
                batch.leases = [(id, 5.0 if granted else None)]
                self._make_durable(batch)
                if granted:
                    self.leases[id] = 5.0
                else:
                    self.leases.pop(id, None)
            case Settle(segments):
                self.hand_over()
                self.journal.settle(self.journal.log.last_of_oldest(segments))
                self._synced()
            case Sync():
                self.journal.sync()
                self._synced()
            case HandOver():
                self.hand_over()
            case _:
                self.take(step)

    def hand_over(self) -> None:
        rest, self._rest = self._rest, Batch()
        self.journal.hold(rest, self._rows.take(), self.journal.log.sequence)
        self.journal.log.folded(self.journal.safe_sequence)

    def _make_durable(self, batch: Batch) -> None:
        log = self.journal.log
        frame = log.frame(batch)
        if not log.fits(len(frame)):
            self._commit_past_the_log(batch)
            return
        offset = log.place(len(frame))
        while offset < 0:
            self.take_logged(Settle(1))
            offset = log.place(len(frame))
        os.pwrite(log.files[0], frame, offset)
        log.acknowledged = log.sequence
        if batch.changes:
            first, last = batch.changes[0][0].mod_revision, batch.changes[-1][-1].mod_revision
            changes = changes_in(frame, batch)
            self._rows.add(log.sequence, changes, first, last, batch.versions_count)
        if not batch.only_changes:
            self._rest.absorb_rest(batch)

    def _commit_past_the_log(self, batch: Batch) -> None:
        if batch.only_changes:
            self.hand_over()
            self.journal.commit_beside(batch)
        else:
            rest, self._rest = self._rest, Batch()
            rest.absorb(batch)
            self.journal.commit(rest, rows=self._rows.take(), sequence=self.journal.log.sequence)
        self._synced()

    def _sweep(self, slices: bool) -> None:
        self.hand_over()
        super()._sweep(slices)
        self.journal.log.folded(self.journal.safe_sequence)

    def lose_power(self) -> None:
        # SQLite folds its log back when it is closed, if it is let: all that is undone.
        tables = self._tables
        self.journal.abandon()
        for path, contents in zip(self._files(), tables, strict=True):
            path.write_bytes(contents)
        self._open()

    def close_and_open(self) -> None:
        rest, self._rest = self._rest, Batch()
        self.journal.commit(rest, rows=self._rows.take(), sequence=self.journal.log.sequence)
        self.reopen()

    def _open(self) -> None:
        super()._open()
        self._begin()


def _found(subject: Logged) -> list[object]:
    state = subject.state
    return [subject.contents(), subject.events(), state.size_bytes, dict(subject.journal.leases())]


@settings(max_examples=max(60, settings().max_examples // 2))
@given(
    st.lists(
        st.tuples(st.lists(logged_steps, min_size=3, max_size=24), st.booleans()),
        min_size=1,
        max_size=3,
    ),
    # In the smallest, the end of a lease finds room, and nothing else does.
    st.sampled_from([36, 120, 300, 5000]),
)
@example(
    # What went past the log lies between two frames that come back from it.
    lives=[
        (
            [
                Commit(({b"1": True},)),
                Commit(({b"0": True}, {b"1": True}, {b"0": False}, {b"0": True})),
                Commit(({b"1": False},)),
            ],
            True,
        )
    ],
    segment_bytes=120,
)
def test_after_a_loss_of_power_everything_is_as_it_was(
    lives: list[tuple[list[LoggedStep], bool]], segment_bytes: int
) -> None:
    with (
        tempfile.TemporaryDirectory() as directory,
        patch.object(log_length, "SEGMENT_BYTES", segment_bytes),
    ):
        subject = Logged(Path(directory) / "q.db")
        for life, power_fails in lives:
            for step in life:
                subject.take_logged(step)
            contents, events = subject.contents(), subject.events()
            subject.take(Trim(None))  # a store that is opened has nothing left to trim
            before = [contents, events, subject.state.size_bytes, subject.leases]
            if power_fails:
                subject.lose_power()
            else:
                subject.close_and_open()
            assert _found(subject) == before
        subject.journal.abandon()


@settings(max_examples=max(20, settings().max_examples // 6))
@given(st.integers(1, 40), st.sampled_from([300, 5000]))
def test_what_is_gone_when_it_is_swept_never_gets_into_the_tables(
    rounds: int, segment_bytes: int
) -> None:
    with (
        tempfile.TemporaryDirectory() as directory,
        patch.object(log_length, "SEGMENT_BYTES", segment_bytes),
    ):
        subject = Logged(Path(directory) / "q.db")
        for number in range(rounds):
            subject.take(Commit(({b"0": True}, {b"1": number % 2 == 0})))
            if number % 3 == 2:
                for step in (Compact(1.0), Trim(None), Sweep(slices=number % 2 == 0)):
                    subject.take(step)
                # What is there, and what the revision that compaction went to has made.
                assert len([kv for row in subject.journal.read() for kv in row]) <= 3
        subject.journal.abandon()
