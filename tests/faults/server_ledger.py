"""What clients of a server asked for and were told, and whether the server's history bears it out.

Every write is named in history by a value (or a key) of its own, so each revision says which request
made it.  A revision must be the whole of one request: the one acknowledged with that very revision, or
one whose answer was lost; never one that was refused or provably not sent, and no request twice.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from quoracy.store.api import Store
from quoracy.store.model import Event, KeyRange, KeyValue, RangeResult, WatchBatch
from quoracy.store.rules import as_range
from tests.faults.judge import read_history
from tests.faults.model import Changes

__all__ = ["Grant", "History", "Ledger", "Outcome", "Watched", "Write"]


class Outcome(Enum):
    OPEN = "not answered yet"
    DONE = "acknowledged"
    UNSURE = "it may have been applied"
    NOT_DONE = "surely not applied"


@dataclass(slots=True, eq=False)
class Write:
    """Keys put (or, with no value, deleted) in this order, in one revision."""

    id: int
    parts: tuple[tuple[bytes, bytes | None], ...]
    lease: int
    least: int  # acknowledged before it was asked for: it must come after
    outcome: Outcome = Outcome.OPEN
    revision: int | None = None  # as acknowledged
    found: int | None = None  # in history
    given_up: bool = False  # by its client, which did not wait for the answer
    error: str = ""


@dataclass(slots=True, eq=False)
class Grant:
    lease: int
    ttl_s: float
    outcome: Outcome = Outcome.OPEN
    error: str = ""


@dataclass(slots=True, eq=False)
class Watched:
    """A watch, by what it asked for, and the batches it delivered that were not judged yet."""

    keys: KeyRange
    after: int
    prev_kv: bool = False
    batches: deque[WatchBatch] = field(default_factory=deque)
    events_count: int = 0


class Ledger:
    """What is known on the clients' side."""

    def __init__(self) -> None:
        self.writes: dict[int, Write] = {}
        self.grants: dict[int, Grant] = {}
        self.watched: list[Watched] = []
        self.reads: deque[tuple[KeyRange, int, RangeResult]] = deque()
        self.newest = 0  # acknowledged or shown to anybody
        self.acknowledged_count = 0
        self._ids = itertools.count(1)
        self._deletes: dict[bytes, int] = {}

    def next_id(self) -> int:
        return next(self._ids)

    def ask(self, id: int, *parts: tuple[bytes, bytes | None], lease: int = 0) -> Write:
        write = self.writes[id] = Write(id, parts, lease, self.newest)
        for key, value in parts:
            if value is None:
                assert key not in self._deletes, "a key is deleted once only, or nobody knows by whom"
                self._deletes[key] = id
        return write

    def acknowledge(self, write: Write, revision: int) -> None:
        write.outcome, write.revision = Outcome.DONE, revision
        self.newest = max(self.newest, revision)
        self.acknowledged_count += 1

    def write_of(self, kv: KeyValue) -> Write | None:
        """The request that wrote this version."""
        if kv.version == 0:
            return self.writes.get(self._deletes.get(kv.key, 0))
        id, _, _ = kv.value.partition(b":")
        return self.writes.get(int(id)) if id.isdigit() else None

    def count(self, outcome: Outcome) -> int:
        """Writes that came to this, not by their client's doing."""
        waited_for = (write for write in self.writes.values() if not write.given_up)
        return sum(write.outcome is outcome for write in waited_for)


class History:
    """The server's history as far as it was read, judged by what the ledger says."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.revision = 1
        self._changes: dict[int, Changes] = {}
        self._versions: dict[bytes, list[KeyValue]] = {}

    async def read_on(self, store: Store) -> None:
        """Read what came since, and judge all that can be judged by it."""
        promised = self._ledger.newest
        for revision, kvs in (await read_history(store, after=self.revision)).items():
            self._take(revision, kvs)
        assert self.revision >= promised, (
            f"revision {promised} was acknowledged or shown, and history ends at {self.revision}"
        )
        self._check_reads()
        for watched in self._ledger.watched:
            self._check_watched(watched)

    def changes(self) -> dict[int, Changes]:
        return dict(self._changes)

    def _take(self, revision: int, kvs: Changes) -> None:
        assert revision == self.revision + 1, f"revision {self.revision + 1} is missing from history"
        write = self._ledger.write_of(kvs[0])
        assert write is not None, f"revision {revision} is {_short(kvs)}, which nobody asked for"
        told = f"revision {revision} is {_short(kvs)}, of {_describe(write)}"
        parts = tuple((kv.key, kv.value if kv.version else None) for kv in kvs)
        assert parts == write.parts, f"{told}: not the whole of it, or not as asked for"
        assert all(kv.lease == write.lease for kv in kvs), f"{told}: of another lease"
        assert all(kv.mod_revision == revision for kv in kvs), told
        assert write.found is None, f"{told}: applied a second time"
        assert write.least < revision, f"{told}: before what was acknowledged before it was asked for"
        write.found = revision
        self.revision = revision
        self._changes[revision] = kvs
        for kv in kvs:
            versions = self._versions.setdefault(kv.key, [])
            before = versions[-1] if versions else None
            version = before.version + 1 if before is not None else 1
            assert kv.version in (0, version), f"{told}: version {version} was due"
            versions.append(kv)

    def check_writes(self) -> None:
        """Every request whose fate is known by now, against the history that was read."""
        for write in self._ledger.writes.values():
            match write.outcome:
                case Outcome.DONE:
                    assert write.revision is not None
                    if write.revision <= self.revision:
                        assert write.found == write.revision, (
                            f"{_describe(write)} is in history at {write.found}: an acknowledged write "
                            f"was lost, and the revision is now {_short(self._changes[write.revision])}"
                        )
                case Outcome.NOT_DONE:
                    assert write.found is None, f"{_describe(write)}, yet it is in history"
                case Outcome.UNSURE | Outcome.OPEN:
                    pass  # there or not, but not in part: `_take` saw to that

    def check_complete(self) -> None:
        """Nothing is left that was not judged."""
        ledger = self._ledger
        self.check_writes()
        assert not ledger.reads, f"a read showed {ledger.reads[0]}, later than history"
        assert not [write for write in ledger.writes.values() if write.outcome is Outcome.OPEN]
        for watched in ledger.watched:
            assert not watched.batches, f"{watched.keys} was shown {watched.batches[0]}, after the end"
            missed = self._first_of(watched, watched.after + 1, self.revision)
            assert missed is None, f"the watch of {watched.keys} never showed revision {missed}"

    async def check_leases(self, store: Store, *, all_keys: bool = False) -> None:
        """All that were granted are there for as long as they were granted, and no others."""
        grants = self._ledger.grants
        granted = {grant.lease for grant in grants.values() if grant.outcome is Outcome.DONE}
        there = set(await store.leases())
        assert granted <= there, f"leases {granted - there} were granted and are gone"
        never = {grant.lease for grant in grants.values() if grant.outcome is Outcome.NOT_DONE}
        assert not there & never, f"leases {there & never} were surely not granted, and are there"
        assert there <= grants.keys(), f"leases {there - grants.keys()} were never asked for"
        for lease in sorted(granted)[:: 1 if all_keys else 10]:
            status = await store.time_to_live(lease, keys=True)
            assert status.ttl_s == grants[lease].ttl_s
            if all_keys:
                assert status.keys == tuple(kv.key for kv in self._live() if kv.lease == lease)

    # -- what was shown ------------------------------------------------------------------------

    def _check_reads(self) -> None:
        later: deque[tuple[KeyRange, int, RangeResult]] = deque()
        for keys, least, result in self._ledger.reads:
            if result.revision > self.revision:
                later.append((keys, least, result))
                continue
            assert result.revision >= least, f"a read of {keys} missed acknowledged revision {least}"
            expected = tuple(self._live(keys, at=result.revision))
            assert result.kvs == expected, f"a read of {keys} at {result.revision} showed what was not"
        self._ledger.reads = later

    def _check_watched(self, watched: Watched) -> None:
        batches = watched.batches
        where = f"the watch of {watched.keys}"
        while batches and batches[0].revision <= self.revision:
            batch = batches.popleft()
            if batch.events:
                assert batch.revision > watched.after, (
                    f"{where} showed revision {batch.revision} after {watched.after}: twice, or late"
                )
                missed = self._first_of(watched, watched.after + 1, batch.revision - 1)
                assert missed is None, (
                    f"{where} skipped revision {missed}: {watched.after}, then {batch.revision}"
                )
                expected = tuple(self._events_of(watched, batch.revision))
                assert batch.events == expected, f"{where} showed a wrong revision {batch.revision}"
                watched.events_count += len(batch.events)
            else:
                assert batch.revision >= watched.after, f"{where} went back"
                missed = self._first_of(watched, watched.after + 1, batch.revision)
                assert missed is None, f"{where} called {batch.revision} complete without {missed}"
            watched.after = batch.revision

    def _first_of(self, watched: Watched, first: int, last: int) -> int | None:
        """The first of these revisions that the watch should have shown."""
        contains = watched.keys.contains
        for revision in range(max(first, 2), last + 1):
            if any(contains(kv.key) for kv in self._changes[revision]):
                return revision
        return None

    def _events_of(self, watched: Watched, revision: int) -> Iterator[Event]:
        for kv in self._changes[revision]:
            if watched.keys.contains(kv.key):
                yield Event(kv, self._at(kv.key, revision - 1) if watched.prev_kv else None)

    def _at(self, key: bytes, revision: int) -> KeyValue | None:
        versions = self._versions.get(key, [])
        index = bisect_right(versions, revision, key=lambda kv: kv.mod_revision)
        return versions[index - 1] if index and versions[index - 1].version else None

    def _live(self, keys: KeyRange | None = None, *, at: int | None = None) -> Iterator[KeyValue]:
        within = as_range(keys) if keys is not None else KeyRange.everything()
        for key in sorted(self._versions):
            if within.contains(key):
                kv = self._at(key, self.revision if at is None else at)
                if kv is not None:
                    yield kv


def _describe(write: Write) -> str:
    parts = [(key, None if value is None else value[:20]) for key, value in write.parts]
    revision = "" if write.revision is None else f" as revision {write.revision}"
    error = f" ({write.error})" if write.error else ""
    return f"write {write.id} {parts}, {write.outcome.value}{revision}{error}"


def _short(kvs: Changes) -> list[tuple[bytes, bytes, int]]:
    return [(kv.key, kv.value[:20], kv.version) for kv in kvs]
