"""Whatever is committed, compacted and cleaned, in whatever pieces: a restart finds the same contents.

The state and the journal alone, without loop or thread, so that a failing example repeats exactly.
"""

from __future__ import annotations

import itertools
import tempfile
from collections import deque
from dataclasses import dataclass
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from quoracy.engines.embedded.committing.group import Batch
from quoracy.engines.embedded.disk.journal import Journal
from quoracy.engines.embedded.disk.sweep import Unswept
from quoracy.engines.embedded.memory.leases import LeaseTable
from quoracy.engines.embedded.memory.state import State
from quoracy.engines.embedded.memory.versions import VersionName, names_of
from quoracy.store.model import Delete, KeyRange, KeyValue, Put, Range, Txn

EVERYTHING = Range(KeyRange.everything())


@dataclass(frozen=True)
class Commit:
    """Revisions that share a commit; in each, keys that are put (True) or deleted (False)."""

    revisions: tuple[dict[bytes, bool], ...]


@dataclass(frozen=True)
class Compact:
    """How far, in parts of the history there is."""

    part: float


@dataclass(frozen=True)
class Trim:
    """So many slices of what compaction left over, in memory; None for all."""

    slices: int | None


@dataclass(frozen=True)
class Clean:
    """How many of the versions that compaction freed are cleaned."""

    count: int


@dataclass(frozen=True)
class Sweep:
    """All that was trimmed, if nothing is left to clean by name; at once or in slices."""

    slices: bool


# Enough keys that a row can lose one version and keep most.
keys = st.sampled_from([b"%d" % i for i in range(8)])
# Mostly one key a revision and several revisions a commit, as from many writers at once; and sometimes
# more keys than one slice of trimming goes through.
revisions = st.dictionaries(keys, st.booleans(), min_size=1, max_size=2) | st.dictionaries(
    keys, st.booleans(), min_size=3, max_size=8
)
steps = (
    st.lists(revisions, min_size=1, max_size=6).map(lambda each: Commit(tuple(each)))
    | st.sampled_from([0.5, 0.9, 1.0]).map(Compact)
    | st.sampled_from([1, 2, None]).map(Trim)
    | st.sampled_from([1, 3, 100]).map(Clean)
    | st.booleans().map(Sweep)
)
Step = Commit | Compact | Trim | Clean | Sweep


class Subject:
    """A state and its journal, and what is to be cleaned."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.state = State(LeaseTable(now=0.0))
        self.journal = Journal.open(path)
        self.garbage: deque[VersionName] = deque()
        self.unswept = Unswept(self.state.revision)

    def take(self, step: Step) -> None:
        match step:
            case Commit(revisions):
                self._commit(revisions)
            case Compact(part):
                self._compact(part)
            case Trim(slices):
                self._trim(slices)
            case Clean(count):
                names = [self.garbage.popleft() for _ in range(min(count, len(self.garbage)))]
                assert self.journal.clean(names, now=lambda: 0.0).done == len(names)
            case Sweep(slices):
                if not self.garbage:
                    self._sweep(slices)

    def _commit(self, revisions: tuple[dict[bytes, bool], ...]) -> None:
        batch = Batch()
        for writes in revisions:
            before = self.state.revision
            self.state.execute(
                Txn(
                    then=tuple(
                        Put(key, b"%d" % before) if put else Delete(key) for key, put in writes.items()
                    )
                )
            )
            if self.state.revision > before:
                batch.changes.append(self.state.changes(self.state.revision))
        if batch:
            self._make_durable(batch)

    def _make_durable(self, batch: Batch) -> None:
        self.journal.commit(batch)

    def _compact(self, part: float) -> None:
        state = self.state
        at = state.compact_revision + round(part * (state.revision - state.compact_revision))
        if at > state.compact_revision:
            batch = Batch()
            batch.compact_revision = at
            self._make_durable(batch)
            state.compact(at)

    def _trim(self, slices: int | None) -> None:
        while self.state.trim_pending and slices != 0:
            newest: dict[bytes, KeyValue] = {}
            freed = self.state.trim(versions_max=2, newest=newest)
            self.garbage.extend(names_of(self.unswept.trimmed(freed, newest)))
            if slices is not None:
                slices -= 1

    def _sweep(self, slices: bool) -> None:
        sweep = self.unswept.sweep(self.state.trimmed_until)
        # A clock that stands still, or one on which a slice is over after each step.
        seconds = itertools.count(0, int(slices))
        while self.journal.sweep(sweep, now=lambda: float(next(seconds)) / 750).more:
            pass
        self.unswept.done(sweep)

    def reopen(self, *, crash: bool = False) -> None:
        if crash:
            self.journal.abandon()
        else:
            self.journal.close()
        self._open()

    def _open(self) -> None:
        self.journal = Journal.open(self.path)
        self.state = State(LeaseTable(now=0.0))
        garbage = self.state.load(
            self.journal.load(),
            revision=self.journal.revision_meta("base_revision"),
            compact_revision=self.journal.revision_meta("compact_revision"),
            source=self.path,
        )
        self.garbage = deque(names_of(garbage))
        self.unswept = Unswept(self.state.revision)

    def contents(self) -> dict[int, tuple[KeyValue, ...]]:
        """What can be read at every revision that can be read."""
        state = self.state
        first = max(state.compact_revision, 1)
        return {
            at: state.range(Range(EVERYTHING.keys, at=at), newest=state.revision).kvs
            for at in range(first, state.revision + 1)
        }

    def events(self) -> dict[int, tuple[KeyValue, ...]]:
        """What a watcher from the oldest kept revision would be told."""
        state = self.state
        first = max(state.compact_revision, 2)
        return {at: state.changes(at) for at in range(first, state.revision + 1)}


@settings(max_examples=max(40, settings().max_examples // 3))
@given(st.lists(st.lists(steps, min_size=3, max_size=16), min_size=1, max_size=3), st.booleans())
@example(
    # Of the compaction revision the order of its events stays.
    lives=[
        [
            Commit(({b"0": True}, {b"1": True, b"0": False})),
            Compact(0.9),
            Trim(None),
            Commit(({b"0": False},)),
            Sweep(slices=False),
        ]
    ],
    crash=False,
)
def test_a_restart_finds_the_same_contents_and_history(lives: list[list[Step]], crash: bool) -> None:
    with tempfile.TemporaryDirectory() as directory:
        subject = Subject(Path(directory) / "q.db")
        for life in lives:
            for step in life:
                subject.take(step)
            before: list[object] = [subject.contents(), subject.events()]
            subject.take(Trim(None))  # a store that is opened has nothing left to trim
            before.append(subject.state.size_bytes)
            subject.reopen(crash=crash)
            assert [subject.contents(), subject.events(), subject.state.size_bytes] == before
        while subject.garbage:
            subject.take(Clean(100))
        subject.journal.close()


@given(st.lists(steps, min_size=3, max_size=20))
def test_what_was_swept_holds_only_what_can_be_read(life: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        subject = Subject(Path(directory) / "q.db")
        for step in life:
            if not isinstance(step, Trim | Clean | Sweep):
                subject.take(step)
        subject.take(Commit(({b"last": True},)))  # the compaction revision itself stays as it is
        subject.take(Compact(1.0))
        subject.take(Trim(None))
        subject.take(Sweep(slices=False))
        on_disk = [kv for versions in subject.journal.read() for kv in versions]
        live = subject.state.range(EVERYTHING, newest=subject.state.revision).kvs
        assert sorted(on_disk, key=lambda kv: kv.key) == list(live)
        subject.journal.close()


@given(st.lists(steps, min_size=3, max_size=20))
def test_what_was_swept_stretch_by_stretch_holds_only_what_can_be_read(life: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        subject = Subject(Path(directory) / "q.db")
        for step in life:
            subject.take(step)
        subject.take(Commit(({b"last": True},)))
        subject.take(Compact(1.0))
        while subject.state.trim_pending or subject.garbage or subject.unswept.freed_count:
            subject.take(Trim(1))
            subject.take(Clean(100))
            subject.take(Sweep(slices=True))
        on_disk = [kv for versions in subject.journal.read() for kv in versions]
        live = subject.state.range(EVERYTHING, newest=subject.state.revision).kvs
        newest = {kv.key: kv for kv in on_disk}
        # What is cleaned by name may lie in a row of which the larger part is needed.
        assert sorted((kv for kv in newest.values() if kv.version), key=lambda kv: kv.key) == list(live)
        assert len(on_disk) < 2 * len(live) + 1
        subject.journal.close()
