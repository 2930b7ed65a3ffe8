"""A store and the naive model get the same random requests; every answer, event and error must agree.

Two machines: one in memory, one on disk that is restarted now and then.  Both run on a clock that the
machine owns and with tiny watch buffers, so that leases end and watchers lag within a few steps.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from quorate.clock import ManualClock
from quorate.errors import Compacted, LeaseNotFound, QuorateError, StoreClosed
from quorate.store.api import PutOptions, RangeOptions, Store, WatchStream
from quorate.store.model import (
    Delete,
    Event,
    KeyRange,
    Keys,
    LeaseGrant,
    LeaseId,
    Put,
    PutResult,
    Range,
    RangeResult,
    Txn,
    WatchBatch,
)
from quorate.store.rules import Limits
from tests.properties.naive import NaiveStore, Refused
from tests.properties.requests import LEASES, any_keys, at_revision, key_ranges, keys, puts, ranges, txns
from tests.support.asking import turns
from tests.support.engines import KEEP_ALL, Capability, Engine, Engines

T = TypeVar("T")

_LIMITS = Limits(txn_ops_max=6, lease_ttl_min_s=1.0, watch_buffer_events_max=3)
_WATCHES_MAX = 6

# A lease ends at the first tick after its time, so for this long it may be either there or gone.
_UNCERTAIN_S = 0.2
# Of a stall at most this much counts for a lease, less what has passed since the last tick.
_STALL_COUNTS_S = (0.3, 0.5)


_ago = st.integers(-1, 15)
_which = st.integers(0, 11)


@dataclass
class _Watch:
    """A watch of the store, and what the model says it asked for."""

    stream: WatchStream
    keys: KeyRange
    after: int
    puts: bool
    deletes: bool
    prev_kv: bool
    progress_wanted: bool = False

    def owed(self, model: NaiveStore) -> list[WatchBatch]:
        """What happened and was not delivered yet."""
        return list(
            model.batches(
                self.keys,
                after=self.after,
                puts=self.puts,
                deletes=self.deletes,
                prev_kv=self.prev_kv,
            )
        )


class _StoreMachine(RuleBasedStateMachine):
    """The rules; subclasses choose the engine."""

    engine_name: str

    def __init__(self) -> None:
        super().__init__()
        self.model = NaiveStore(
            txn_ops_max=_LIMITS.txn_ops_max, lease_ttl_min_s=_LIMITS.lease_ttl_min_s
        )
        self.clock = ManualClock()
        self.watches: list[_Watch] = []
        self._loop = asyncio.new_event_loop()
        self._directory = Path(tempfile.mkdtemp(prefix="quorate-machine-"))
        self._engine: Engine = Engines(self._directory).get(self.engine_name)
        self._open: AsyncExitStack
        self.store: Store
        self.audit: WatchStream

    @initialize()
    def open(self) -> None:
        self.run(self._enter())

    def teardown(self) -> None:
        try:
            if hasattr(self, "store"):
                self._compare_all_that_is_kept()
                self.run(self._open.aclose())
        finally:
            self._loop.close()
            shutil.rmtree(self._directory)

    async def _enter(self) -> None:
        self._open = AsyncExitStack()
        self.store = await self._open.enter_async_context(
            self._engine.open(limits=_LIMITS, retention=KEEP_ALL, clock=self.clock)
        )
        # A watch of everything that is always read to the end: it tells in which order leases ended.
        self.audit = self.store.watch(KeyRange.everything(), prev_kv=True, after=self.model.revision)
        await self._open.enter_async_context(self.audit)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(asyncio.wait_for(work, timeout=20))

    # -- reading and writing -----------------------------------------------------------------

    @rule(op=puts)
    def put(self, op: Put) -> None:
        self._same(lambda: self.model.put(op), self._put(op))

    @rule(keys=any_keys, prev_kv=st.booleans())
    def delete(self, keys: Keys, prev_kv: bool) -> None:
        op = Delete(keys, prev_kv)
        self._same(lambda: self.model.delete(op), self.store.delete(keys, prev_kv=prev_kv))

    @rule(drawn=txns)
    def txn(self, drawn: Txn) -> None:
        txn = at_revision(drawn, self.model.revision)
        self._same(lambda: self.model.txn(txn), self.store.txn(txn))

    @rule(drawn=ranges)
    def range(self, drawn: Range) -> None:
        op = at_revision(drawn, self.model.revision)
        self._same(lambda: self.model.range(op), self._range(op))

    @rule(ops=st.lists(st.tuples(keys, st.booleans()), min_size=2, max_size=8))
    def write_and_read_at_once(self, ops: list[tuple[bytes, bool]]) -> None:
        """Writes in one group commit, reads in between: each read shows one state there was."""
        asked: list[Coroutine[Any, Any, PutResult | RangeResult]] = []
        for i, (key, write) in enumerate(ops):
            if write:
                asked.append(self.store.put(key or b"a", b"%d" % i, prev_kv=True))
            else:
                asked.append(self.store.range(KeyRange.everything()))
        before = self.model.revision
        answers = self.run(_gather(asked))
        written = [
            (answer, Put(key or b"a", b"%d" % i, prev_kv=True))
            for i, ((key, _), answer) in enumerate(zip(ops, answers, strict=True))
            if isinstance(answer, PutResult)
        ]
        for answer, op in sorted(written, key=lambda pair: pair[0].revision):
            assert self.model.put(op) == answer
        for seen in answers:
            if isinstance(seen, RangeResult):
                assert seen.revision >= before
                was = self.model.range(Range(KeyRange.everything(), at=seen.revision))
                assert (seen.kvs, seen.count) == (was.kvs, was.count)

    @rule(ago=_ago)
    def compact(self, ago: int) -> None:
        at = max(self.model.revision - ago, 0)
        self._same(lambda: self.model.compact(at), self.store.compact(at))

    @rule(ago=_ago)
    def hash(self, ago: int) -> None:
        oldest = max(self.model.compact_revision, 1)
        at = min(max(self.model.revision - ago, oldest), self.model.revision)
        state = self.run(self.store.hash(at=at))
        assert (state.revision, state.compact_revision) == (at, self.model.compact_revision)
        assert state.digest == self.model.digest(at)

    # -- leases ------------------------------------------------------------------------------

    @rule(id=st.sampled_from([*LEASES, None]), ttl_s=st.sampled_from([0.5, 2.0, 3.5, 6.0]))
    def grant(self, id: int | None, ttl_s: float) -> None:
        if id is None:
            lease = self.run(self.store.grant(ttl_s))
            assert lease.ttl_s == self.model.grant(lease.id, ttl_s)
        else:
            chosen = LeaseId(id)
            self._same(
                lambda: LeaseGrant(chosen, self.model.grant(chosen, ttl_s)),
                self.store.grant(ttl_s, id=chosen),
            )

    @rule(which=_which)
    def keep_alive(self, which: int) -> None:
        id = self._some_lease(which)
        self._same(lambda: LeaseGrant(id, self.model.keep_alive(id)), self.store.keep_alive(id))

    @rule(which=_which)
    def revoke(self, which: int) -> None:
        id = self._some_lease(which)
        self._same(lambda: self.model.revoke(id), self.store.revoke(id))

    @rule(which=_which)
    def time_to_live(self, which: int) -> None:
        id = self._some_lease(which)
        if id not in self.model.leases:
            self._same(lambda: self.model.keys_of(id), self.store.time_to_live(id))
            return
        status = self.run(self.store.time_to_live(id, keys=True))
        lease = self.model.leases[id]
        assert (status.id, status.ttl_s, status.keys) == (id, lease.ttl_s, self.model.keys_of(id))
        assert lease.ttl_s - lease.age_max_s - 0.01 <= status.remaining_s
        assert status.remaining_s <= lease.ttl_s - lease.age_min_s + _UNCERTAIN_S

    @rule(seconds=st.sampled_from([0.5, 1.0, 2.0, 4.0]))
    def let_time_pass(self, seconds: float) -> None:
        self.run(self.clock.advance(seconds))
        self.model.pass_time(seconds, seconds)
        self._leases_end()

    @rule(seconds=st.sampled_from([1.0, 60.0, 3600.0]))
    def stall(self, seconds: float) -> None:
        self.clock.jump(seconds)
        self.run(self.clock.advance(0))
        self.model.pass_time(*_STALL_COUNTS_S)
        self._leases_end()

    def _some_lease(self, which: int) -> LeaseId:
        """One that may exist, mostly one that does."""
        candidates = [*sorted(self.model.leases), *LEASES, 99]
        return LeaseId(candidates[which % len(candidates)])

    def _leases_end(self) -> None:
        """Go on until it is certain which leases ended; then the store must agree."""
        while any(
            lease.age_max_s >= lease.ttl_s and lease.age_min_s <= lease.ttl_s + _UNCERTAIN_S
            for lease in self.model.leases.values()
        ):
            self.run(self.clock.advance(0.25))
            self.model.pass_time(0.25, 0.25)
        ended = {
            id: set(self.model.keys_of(id))
            for id, lease in self.model.leases.items()
            if lease.age_min_s > lease.ttl_s
        }
        self._read_audit()
        for id in [id for id, keys in ended.items() if not keys]:
            self.model.revoke(id)
            del ended[id]
        while ended:
            # In which order leases end that are due together is not promised.
            batch = self.run(_next(self.audit))
            gone = {event.kv.key for event in batch.events}
            id = next(id for id, keys in ended.items() if keys == gone)
            self.model.revoke(id)
            del ended[id]
            assert batch.events == tuple(self.model.events[self.model.revision])
            assert batch.revision == self.model.revision

    # -- watches -----------------------------------------------------------------------------

    @precondition(lambda self: len(self.watches) < _WATCHES_MAX)
    @rule(
        keys=key_ranges,
        puts=st.sampled_from([True, True, True, False]),
        deletes=st.sampled_from([True, True, True, False]),
        prev_kv=st.booleans(),
        ago=st.one_of(st.none(), st.integers(-2, 15)),
    )
    def watch(
        self, keys: KeyRange, puts: bool, deletes: bool, prev_kv: bool, ago: int | None
    ) -> None:
        after = None if ago is None else max(self.model.revision - ago, 0)
        stream = self.store.watch(keys, after=after, puts=puts, deletes=deletes, prev_kv=prev_kv)
        start = self.model.revision if after is None else after
        watch = _Watch(stream, keys, start, puts, deletes, prev_kv)
        self.run(stream.__aenter__())
        assert stream.revision == start
        # Revision 1 is empty, so a watch after 0 lacks nothing of it.
        if max(start, 1) + 1 < self.model.compact_revision:
            error = self.run(_failure(stream))
            assert isinstance(error, Compacted)
            assert error.oldest == self.model.compact_revision
            self.run(stream.__aexit__(None, None, None))
        else:
            self.watches.append(watch)

    @precondition(lambda self: self.watches)
    @rule(which=_which, count=st.integers(1, 8))
    def read_watch(self, which: int, count: int) -> None:
        watch = self.watches[which % len(self.watches)]
        for _ in range(count):
            if not self._read_one(watch):
                break

    @precondition(lambda self: self.watches)
    @rule(which=_which)
    def request_progress(self, which: int) -> None:
        watch = self.watches[which % len(self.watches)]
        watch.stream.request_progress()
        watch.progress_wanted = True

    @precondition(lambda self: self.watches)
    @rule(which=_which)
    def leave_watch(self, which: int) -> None:
        watch = self.watches[which % len(self.watches)]
        self.run(watch.stream.__aexit__(None, None, None))
        self.watches.remove(watch)

    def _read_one(self, watch: _Watch) -> bool:
        """Read what the watch must tell next; False if that is nothing, or the end."""
        owed = watch.owed(self.model)
        may_progress = watch.progress_wanted and watch.after <= self.model.revision
        if not owed and not may_progress:
            assert self.run(_is_silent(watch.stream))
            return False
        try:
            batch = self.run(_next(watch.stream))
        except Compacted as error:
            assert max(watch.after, 1) + 1 < self.model.compact_revision
            assert error.oldest == self.model.compact_revision
            self.run(watch.stream.__aexit__(None, None, None))
            self.watches.remove(watch)
            return False
        if owed:
            self._check_batch(batch, owed[0])
        else:
            assert batch == WatchBatch(batch.revision)
            assert batch.revision == self.model.revision
            watch.progress_wanted = False
        watch.after = batch.revision
        assert watch.stream.revision == batch.revision
        return True

    def _check_batch(self, got: WatchBatch, want: WatchBatch) -> None:
        """They must be the same, but for a previous version that has been compacted."""
        events = tuple(
            Event(expected.kv)
            if actual.prev_kv is None and expected.kv.mod_revision <= self.model.compact_revision
            else expected
            for actual, expected in zip(got.events, want.events, strict=False)
        )
        assert (got.revision, got.events) == (want.revision, events)
        assert len(got.events) == len(want.events)

    def _read_audit(self) -> None:
        for revision in range(self.audit.revision + 1, self.model.revision + 1):
            batch = self.run(_next(self.audit))
            self._check_batch(batch, WatchBatch(batch.revision, tuple(self.model.events[revision])))
            assert batch.revision == revision

    # -- what always holds -------------------------------------------------------------------

    @invariant()
    def contents_agree(self) -> None:
        if hasattr(self, "store"):
            self._read_audit()
            everything = Range(KeyRange.everything())
            assert self.run(self.store.range(everything.keys)) == self.model.range(everything)

    @invariant()
    def counters_agree(self) -> None:
        if hasattr(self, "store"):
            status = self.run(self.store.status())
            assert status.revision == self.model.revision
            assert status.compact_revision == self.model.compact_revision
            assert status.keys_count == len(self.model.now)
            assert status.watchers_count == len(self.watches) + 1
            assert self.run(self.store.leases()) == tuple(sorted(self.model.leases))
            assert not status.alarms

    def _compare_all_that_is_kept(self) -> None:
        oldest = max(self.model.compact_revision, 1)
        for at in range(oldest, self.model.revision + 1):
            assert self.run(self.store.hash(at=at)).digest == self.model.digest(at)
        while self.watches:
            watch = self.watches[0]
            while self._read_one(watch):
                pass
            if watch in self.watches:
                self.run(watch.stream.__aexit__(None, None, None))
                self.watches.remove(watch)
        self.run(self._replay(after=oldest - 1))

    async def _replay(self, *, after: int) -> None:
        async with self.store.watch(KeyRange.everything(), after=after, prev_kv=True) as stream:
            for revision in range(max(after, 1) + 1, self.model.revision + 1):
                batch = await anext(stream)
                want = WatchBatch(batch.revision, tuple(self.model.events[revision]))
                self._check_batch(batch, want)
                assert batch.revision == revision

    # ----------------------------------------------------------------------------------------

    def _same(self, expected: Callable[[], T], asked: Coroutine[Any, Any, T | object]) -> None:
        """The store answers, or refuses, as the model does."""
        try:
            want: T | None = expected()
        except Refused as refused:
            try:
                got = self.run(asked)
            except QuorateError as error:
                assert type(error) in refused.kinds, f"{error!r} instead of {refused}"
                return
            raise AssertionError(f"{got} instead of {refused}") from None
        assert self.run(asked) == want

    async def _put(self, op: Put) -> PutResult:
        options: PutOptions = {
            "lease": op.lease,
            "prev_kv": op.prev_kv,
            "ignore_value": op.ignore_value,
            "ignore_lease": op.ignore_lease,
        }
        return await self.store.put(op.key, op.value, **options)

    async def _range(self, op: Range) -> RangeResult:
        options = {name: getattr(op, name) for name in RangeOptions.__annotations__}
        return await self.store.range(op.keys, **cast(RangeOptions, options))


class MemoryMachine(_StoreMachine):
    engine_name = "memory"


class SqliteMachine(_StoreMachine):
    engine_name = "sqlite"

    @rule()
    def restart(self) -> None:
        """Close, see every watch end with an error, open again: everything is back."""
        self.run(self._open.aclose())
        for watch in self.watches:
            owed = watch.owed(self.model)
            told, error = self.run(_rest(watch.stream))
            assert isinstance(error, StoreClosed | Compacted)
            events = [batch for batch in told if batch.events]
            assert [batch.revision for batch in events] == [
                batch.revision for batch in owed[: len(events)]
            ]
            self.run(watch.stream.__aexit__(None, None, None))
        self.watches = []
        self.model.restart()
        self.run(self._enter())


async def _gather(asked: list[Coroutine[Any, Any, T]]) -> list[T]:
    return await asyncio.gather(*asked)


async def _next(stream: WatchStream) -> WatchBatch:
    return await anext(stream)


async def _is_silent(stream: WatchStream) -> bool:
    waiting = asyncio.ensure_future(anext(stream))
    await turns()
    silent = not waiting.done()
    waiting.cancel()
    await asyncio.wait([waiting])
    return silent


async def _rest(stream: WatchStream) -> tuple[list[WatchBatch], QuorateError]:
    """Everything a watch still tells, and the error it ends with."""
    told: list[WatchBatch] = []
    try:
        while True:
            told.append(await anext(stream))
    except QuorateError as error:
        return told, error


async def _failure(stream: WatchStream) -> QuorateError:
    return (await _rest(stream))[1]


# The profile in conftest.py decides when it asks for more than this.
_SOAK = settings().max_examples > 1_000
MemoryMachine.TestCase.settings = settings(
    settings(), max_examples=settings().max_examples if _SOAK else 150, stateful_step_count=50
)
SqliteMachine.TestCase.settings = settings(
    settings(), max_examples=settings().max_examples if _SOAK else 60, stateful_step_count=40
)

TestMemoryMachine = MemoryMachine.TestCase
TestSqliteMachine = SqliteMachine.TestCase
