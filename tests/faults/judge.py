"""After a crash: is everything that was acknowledged or seen there, and nothing by halves?

The judge holds a model that lives from crash to crash.  Each revision the store now has must be the
whole effect of one operation the child asked for: the one acknowledged with that revision, or one
whose answer never came.  From there the contents, versions, leases and digest follow, and must agree.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from quoracy.clock import ManualClock
from quoracy.engines.embedded.disk.doctor import examine
from quoracy.engines.embedded.engine import EmbeddedStore
from quoracy.engines.embedded.retention import Retention
from quoracy.engines.opening import open_embedded
from quoracy.errors import Compacted, Indeterminate
from quoracy.store.api import Store
from quoracy.store.model import KeyRange, StoreStatus
from quoracy.store.rules import Limits
from tests.faults.model import Changes, Model
from tests.faults.reports import (
    Acknowledged,
    Asked,
    Compact,
    End,
    Failed,
    Grant,
    Happened,
    Opened,
    Operation,
    Read,
    Refused,
    Report,
)

__all__ = ["EVERYTHING", "KEEP_ALL", "Judge", "Ledger", "read_history"]

KEEP_ALL = Retention(revisions_max=None, age_max_s=None)
EVERYTHING = KeyRange.everything()
_LIMITS = Limits(lease_ttl_min_s=0.1)


class Ledger:
    """What one child told, sorted by what it proves."""

    def __init__(self, reports: Sequence[Report]) -> None:
        self.open: dict[int, Operation] = {}  # asked for, answer unknown
        self.least: dict[int, int] = {}  # by operation: must come after this revision
        self.done: dict[int, Operation] = {}  # done for certain, with no acknowledged revision
        self.made: dict[int, int] = {}  # revision -> the operation acknowledged with it
        self.seen: dict[int, Changes] = {}  # revision -> what a watch showed of it
        self.reads: list[Read] = []
        self.opened: Opened | None = None
        self._asked: dict[int, Operation] = {}
        newest = 0
        for report in reports:
            match report:
                case Opened():
                    self.opened = report
                case Asked(id, operation):
                    self.open[id] = self._asked[id] = operation
                    self.least[id] = newest
                case Acknowledged(id, None):
                    self.done[id] = self.open.pop(id)
                case Acknowledged(id, int(revision)):
                    assert revision not in self.made, f"two writes were given revision {revision}"
                    assert revision > self.least[id], f"revision {revision} was given out of order"
                    self.made[revision] = id
                    newest = max(newest, revision)
                    del self.open[id]
                case Refused(id):
                    del self.open[id]
                case Failed(id, kind) if kind != Indeterminate.__name__:
                    del self.open[id]  # not done, and never will be
                case Read():
                    self.reads.append(report)
                case Happened(revision, kvs):
                    gap = self.seen and revision != max(self.seen) + 1
                    assert not gap, f"after {max(self.seen)} the watch showed {revision}"
                    self.seen[revision] = kvs
                case _:
                    pass

    def operation(self, id: int) -> Operation:
        return self._asked[id]

    def answered(self) -> list[Operation]:
        return [*self.done.values(), *(self._asked[id] for id in self.made.values())]


class Judge:
    """Compares a store with all that was ever told about it."""

    def __init__(self) -> None:
        self.model = Model()
        self.revisions_unacknowledged = 0
        self._expiring: set[int] = set()

    def twin(self) -> Judge:
        """Another that knows the same so far."""
        twin = Judge()
        twin.model = self.model.copy()
        twin._expiring = set(self._expiring)
        return twin

    async def judge(self, path: Path, reports: Sequence[Report], rng: random.Random) -> None:
        """The store at `path` must hold what these reports and the ones before them promise."""
        ledger = Ledger(reports)
        if ledger.opened is not None:
            self._check_opened(ledger.opened)
        async with open_embedded(
            f"sqlite:{path}", retention=KEEP_ALL, limits=_LIMITS, clock=ManualClock()
        ) as store:
            status = await store.status()
            self._check_compaction(ledger, status)
            history = await read_history(store, after=max(status.compact_revision - 1, 0))
            self.advance(ledger, history, status)
            await self._check_leases(ledger, store)
            await self._check_contents(store, rng)
            self._check_seen(ledger)
        report = examine(path)
        assert report.healthy, [finding.what for finding in report.findings if not finding.ok]
        self.model.forget(self.model.compact_revision)

    def _check_opened(self, opened: Opened) -> None:
        """The child itself must have found what the last judgement found."""
        assert opened.revision == self.model.revision
        assert opened.compact_revision >= self.model.compact_revision
        assert opened.digest == self.model.digest(), "the child opened other contents"

    def _check_compaction(self, ledger: Ledger, status: StoreStatus) -> None:
        compacted = [op.revision for op in ledger.answered() if isinstance(op, Compact)]
        least = max([self.model.compact_revision, *compacted])
        assert status.compact_revision >= least, "an acknowledged compaction is undone"
        self.model.compact_revision = status.compact_revision

    def advance(self, ledger: Ledger, history: dict[int, Changes], status: StoreStatus) -> None:
        """Explain every new revision, one by one."""
        model = self.model
        read = [read.revision for read in ledger.reads]
        promised = max([model.revision, *ledger.made, *ledger.seen, *read])
        assert status.revision >= promised, (
            f"revision {promised} was acknowledged or shown, but the store is at {status.revision}"
        )
        assert not history or max(history) == status.revision
        while model.revision < status.revision:
            revision = model.revision + 1
            found = history.get(revision)
            if revision >= max(status.compact_revision, 2):
                assert found is not None, f"revision {revision} is missing from history"
            id = ledger.made.get(revision)
            if id is not None:
                effect = model.effect(ledger.operation(id))
                where = f"revision {revision}, acknowledged as {ledger.operation(id)}"
                assert effect, f"{where}: it could not have changed anything"
                assert found is None or found == effect, f"{where}: {found} instead of {effect}"
            else:
                effect = self._explain(ledger, revision, found or ledger.seen.get(revision))
            model.apply(effect)

    def _explain(self, ledger: Ledger, revision: int, found: Changes | None) -> Changes:
        """A revision nobody was told about must be one whole operation that was asked for."""
        assert found is not None, f"revision {revision} was neither kept nor ever reported"
        self.revisions_unacknowledged += 1
        for id, operation in ledger.open.items():
            if ledger.least[id] < revision and self.model.effect(operation) == found:
                ledger.done[id] = ledger.open.pop(id)
                return found
        granted = (op for op in [*ledger.answered(), *ledger.open.values()] if isinstance(op, Grant))
        self._expiring |= {op.lease for op in granted if op.expires}
        for lease in self._expiring:
            if self.model.effect(End(lease)) == found:
                return found
        raise AssertionError(
            f"revision {revision} is {found}, which no operation explains; open: {ledger.open}"
        )

    async def _check_leases(self, ledger: Ledger, store: EmbeddedStore) -> None:
        granted = {op.lease: op for op in ledger.answered() if isinstance(op, Grant)}
        maybe = {op.lease: op for op in ledger.open.values() if isinstance(op, Grant)}
        ended = {op.lease for op in ledger.answered() if isinstance(op, End)}
        ending = {op.lease for op in ledger.open.values() if isinstance(op, End)}
        known = self.model.leases
        ttls = known | {op.lease: op.ttl_s for op in [*granted.values(), *maybe.values()]}
        self._expiring |= {op.lease for op in [*granted.values(), *maybe.values()] if op.expires}
        there = set(await store.leases())
        missing = (known.keys() | granted.keys()) - ended - ending - self._expiring - there
        assert not missing, f"leases {missing} were acknowledged and are gone"
        assert not there & ended, f"leases {there & ended} ended and are back"
        assert there <= ttls.keys(), f"leases {there - ttls.keys()} were never asked for"
        for lease in there:
            status = await store.time_to_live(lease, keys=True)
            assert status.ttl_s == ttls[lease]
            assert status.remaining_s == status.ttl_s, "a restart must give the full time again"
            assert status.keys == self.model.keys_of(lease)
        for kv in self.model.live():
            assert not kv.lease or kv.lease in there, f"{kv} has a lease that is gone"
        self.model.leases = {lease: ttls[lease] for lease in there}
        self._expiring &= there

    async def _check_contents(self, store: EmbeddedStore, rng: random.Random) -> None:
        model = self.model
        assert (await store.range(EVERYTHING)).kvs == model.live()
        assert (await store.hash()).digest == model.digest()
        oldest = max(model.compact_revision, 1)
        for at in {oldest, *(rng.randint(oldest, model.revision) for _ in range(5))}:
            assert (await store.range(EVERYTHING, at=at)).kvs == model.live(at=at), f"at {at}"
        if oldest > 1:
            with pytest.raises(Compacted) as refusal:
                await store.range(b"k", at=oldest - 1)
            assert refusal.value.oldest == oldest

    def _check_seen(self, ledger: Ledger) -> None:
        """Nothing a watch or a read ever showed may be undone."""
        model = self.model
        for revision, kvs in ledger.seen.items():
            for kv in kvs:
                assert model.wrote(kv), f"the watch showed {kv} at {revision}, which did not happen"
        for read in ledger.reads:
            assert read.revision >= read.least, "a read missed an acknowledged write"
            expected = model.live(read.prefix, at=read.revision)
            assert read.kvs == expected, f"a read at {read.revision} showed {read.kvs}, not {expected}"


async def read_history(store: Store, *, after: int) -> dict[int, Changes]:
    """Every revision's changes, in order, through a watch."""
    history: dict[int, Changes] = {}
    async with store.watch(EVERYTHING, after=after) as batches:
        # Asked for at the end of history, so it comes after everything else.
        batches.request_progress()
        async for batch in batches:
            if not batch.events:
                break
            assert batch.revision not in history, f"revision {batch.revision} came twice"
            assert not history or batch.revision > max(history), "history came out of order"
            history[batch.revision] = tuple(event.kv for event in batch.events)
    return history
