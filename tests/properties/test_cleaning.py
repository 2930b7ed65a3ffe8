"""Whatever is committed, compacted and cleaned, in whatever pieces: a restart finds the same contents.

The state and the journal alone, without loop or thread, so that a failing example repeats exactly.
"""

from __future__ import annotations

import tempfile
from collections import deque
from dataclasses import dataclass
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from quorate.engines.embedded.batch import Batch
from quorate.engines.embedded.journal import Journal
from quorate.engines.embedded.leases import LeaseTable
from quorate.engines.embedded.state import State
from quorate.engines.embedded.versions import VersionName, names_of
from quorate.store.model import Delete, KeyRange, KeyValue, Put, Range, Txn

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
class Clean:
    """How many of the versions that compaction freed are cleaned."""

    count: int


# Enough keys that a row can lose one version and keep most.
keys = st.sampled_from([b"%d" % i for i in range(8)])
# Mostly one key a revision and several revisions a commit, as from many writers at once.
revisions = st.dictionaries(keys, st.booleans(), min_size=1, max_size=2)
steps = (
    st.lists(revisions, min_size=1, max_size=6).map(lambda each: Commit(tuple(each)))
    | st.sampled_from([0.5, 0.9, 1.0]).map(Compact)
    | st.sampled_from([1, 3, 100]).map(Clean)
)


class Subject:
    """A state and its journal, and what is to be cleaned."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.state = State(LeaseTable(now=0.0))
        self.journal = Journal.open(path)
        self.garbage: deque[VersionName] = deque()

    def take(self, step: Commit | Compact | Clean) -> None:
        match step:
            case Commit(revisions):
                self._commit(revisions)
            case Compact(part):
                self._compact(part)
            case Clean(count):
                names = [self.garbage.popleft() for _ in range(min(count, len(self.garbage)))]
                assert self.journal.clean(names, now=lambda: 0.0).done == len(names)

    def _commit(self, revisions: tuple[dict[bytes, bool], ...]) -> None:
        batch = Batch()
        for writes in revisions:
            before = self.state.revision
            self.state.txn(
                Txn(
                    then=tuple(
                        Put(key, b"%d" % before) if put else Delete(key) for key, put in writes.items()
                    )
                )
            )
            if self.state.revision > before:
                batch.changes.append(self.state.changes(self.state.revision))
        if batch:
            self.journal.commit(batch)

    def _compact(self, part: float) -> None:
        state = self.state
        at = state.compact_revision + round(part * (state.revision - state.compact_revision))
        if at > state.compact_revision:
            batch = Batch()
            batch.compact_revision = at
            self.journal.commit(batch)
            state.compact(at)
            while state.trim_pending:
                self.garbage.extend(names_of(state.trim(versions_max=2)))

    def reopen(self) -> None:
        self.journal.close()
        self.journal = Journal.open(self.path)
        self.state = State(LeaseTable(now=0.0))
        garbage = self.state.load(
            self.journal.load(),
            revision=self.journal.revision_meta("base_revision"),
            compact_revision=self.journal.revision_meta("compact_revision"),
            source=self.path,
        )
        self.garbage = deque(names_of(garbage))

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
@given(st.lists(st.lists(steps, min_size=3, max_size=12), min_size=1, max_size=3))
def test_a_restart_finds_the_same_contents_and_history(
    lives: list[list[Commit | Compact | Clean]],
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        subject = Subject(Path(directory) / "q.db")
        for life in lives:
            for step in life:
                subject.take(step)
            before = subject.contents(), subject.events(), subject.state.size_bytes
            subject.reopen()
            assert (subject.contents(), subject.events(), subject.state.size_bytes) == before
        # And when all is cleaned, only what can be read is left on disk, but for rows half full.
        while subject.garbage:
            subject.take(Clean(100))
        subject.journal.close()
