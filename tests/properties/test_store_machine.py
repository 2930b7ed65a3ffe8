"""A store and the naive model get the same random requests; every answer, event and error must agree.

Two machines: one in memory, one on disk that is restarted now and then.  Both run on a clock that the
machine owns and with tiny watch buffers, so that leases end and watchers lag within a few steps.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from quoracy.clock import ManualClock
from quoracy.errors import Compacted, QuoracyError, StoreClosed
from quoracy.store.api import PutOptions, RangeOptions, Store, Watch
from quoracy.store.model import (
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
from quoracy.store.rules import Limits
from tests.properties.naive import NaiveStore, Refused
from tests.properties.requests import (
    KEYS,
    LEASES,
    any_keys,
    at_revision,
    key_ranges,
    keys,
    puts,
    ranges,
    txns,
)
from tests.support.asking import read_to_the_end, turns
from tests.support.engines import KEEP_ALL, Engine, Engines

T = TypeVar("T")

_LIMITS = Limits(txn_ops_max=8, lease_ttl_min_s=1.0, watch_buffer_events_max=3)
_WATCHES_MAX = 6

# A lease ends at the first tick after its time, so for this long it may be either there or gone.
_UNCERTAIN_S = 0.2
# Of a stall at most this much counts for a lease, less what has passed since the last tick.
_STALL_COUNTS_S = (0.3, 0.5)


_ago = st.integers(-1, 15)
_which = st.integers(0, 11)
_values = st.sampled_from([b"", b"1", b"2"])


@dataclass
class _Watch:
    """A watch of the store, and what the model says it asked for."""

    stream: Watch
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
        self._directory = Path(tempfile.mkdtemp(prefix="quoracy-machine-"))
        self._engine: Engine = Engines(self._directory).get(self.engine_name)
        self._open: AsyncExitStack
        self.store: Store
        self.audit: Watch
        self.run(self._enter())

    @initialize(ids=st.sets(st.sampled_from(LEASES)))
    def begin(self, ids: set[int]) -> None:
        for id in sorted(ids):
            self.grant(id, 6.0)

    def teardown(self) -> None:
        try:
            if sys.exception() is None:  # else it would hide the difference that was found
                self._compare_all_that_is_kept()
        finally:
            self.run(self._open.aclose())
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

    @rule(names=st.sets(st.sampled_from(KEYS), min_size=1), value=_values, which=_which)
    def write_many(self, names: set[bytes], value: bytes, which: int) -> None:
        """One revision with many keys, all of one lease if there is one."""
        leases = [0, *sorted(self.model.leases)]
        lease = leases[which % len(leases)]
        ops = tuple(Put(key, value, lease=lease, prev_kv=True) for key in sorted(names)[:8])
        self._same(lambda: self.model.txn(Txn(then=ops)), self.store.txn(Txn(then=ops)))

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

    @rule(ago=st.one_of(st.just(0), _ago))
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

    @rule(which=_which, what=st.sampled_from(["keep alive", "keep alive", "ask", "revoke"]))
    def use_lease(self, which: int, what: str) -> None:
        id = self._some_lease(which)
        match what:
            case "keep alive":
                self._same(lambda: LeaseGrant(id, self.model.keep_alive(id)), self.store.keep_alive(id))
            case "revoke":
                self._same(lambda: self.model.revoke(id), self.store.revoke(id))
            case _ if id not in self.model.leases:
                self._same(lambda: self.model.keys_of(id), self.store.time_to_live(id))
            case _:
                self._ask_time_to_live(id)

    def _ask_time_to_live(self, id: LeaseId) -> None:
        status = self.run(self.store.time_to_live(id, keys=True))
        lease = self.model.leases[id]
        assert (status.id, status.ttl_s, status.keys) == (id, lease.ttl_s, self.model.keys_of(id))
        assert lease.ttl_s - lease.age_max_s - 0.01 <= status.remaining_s
        assert status.remaining_s <= lease.ttl_s - lease.age_min_s + _UNCERTAIN_S

    @rule(seconds=st.sampled_from([0.5, 1.0, 2.0, 4.0]), stalled=st.booleans())
    def let_time_pass(self, seconds: float, stalled: bool) -> None:
        if stalled:
            self.clock.jump(seconds * 1000)
            self.run(self.clock.advance(0))
            self.model.pass_time(*_STALL_COUNTS_S)
        else:
            self.run(self.clock.advance(seconds))
            self.model.pass_time(seconds, seconds)
        self._leases_end()

    def _some_lease(self, which: int) -> LeaseId:
        """One that may exist, mostly one that does."""
        candidates = [*sorted(self.model.leases)] * 3 + [*LEASES, 99]
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
        for id in [id for id, held in ended.items() if not held]:
            self.model.revoke(id)
            del ended[id]
        while ended:
            # In which order leases end that are due together is not promised.
            batch = self.run(_next(self.audit))
            assert batch is not None
            gone = {event.kv.key for event in batch.events}
            id = next(id for id, held in ended.items() if held == gone)
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
        ago=st.one_of(st.none(), st.integers(-2, -1), st.integers(0, 15)),
    )
    def watch(self, keys: KeyRange, puts: bool, deletes: bool, prev_kv: bool, ago: int | None) -> None:
        after = None if ago is None else max(self.model.revision - ago, 0)
        stream = self.store.watch(keys, after=after, puts=puts, deletes=deletes, prev_kv=prev_kv)
        start = self.model.revision if after is None else after
        watch = _Watch(stream, keys, start, puts, deletes, prev_kv)
        self.run(stream.__aenter__())
        assert stream.revision == start
        # Revision 1 is empty, so a watch after 0 lacks nothing of it.
        if max(start, 1) + 1 < self.model.compact_revision:
            _, error = self.run(read_to_the_end(stream))
            assert isinstance(error, Compacted)
            assert error.oldest == self.model.compact_revision
            self.run(stream.__aexit__(None, None, None))
        else:
            self.watches.append(watch)

    @precondition(lambda self: self.watches)
    @rule(which=_which, count=st.integers(0, 8), progress=st.booleans())
    def read_watch(self, which: int, count: int, progress: bool) -> None:
        watch = self.watches[which % len(self.watches)]
        if progress:
            watch.stream.request_progress()
            watch.progress_wanted = True
        for _ in range(count):
            if not self._read_one(watch):
                break

    @precondition(lambda self: self.watches)
    @rule(which=_which)
    def leave_watch(self, which: int) -> None:
        self._leave(self.watches[which % len(self.watches)])

    def _read_one(self, watch: _Watch) -> bool:
        """Read what the watch must tell next; False if that is nothing, or the end."""
        owed = watch.owed(self.model)
        may_progress = watch.progress_wanted and watch.after <= self.model.revision
        try:
            batch = self.run(_next(watch.stream) if owed or may_progress else _peek(watch.stream))
        except Compacted as error:
            # It lagged; what it had not been handed is gone, whether it would have told of it or not.
            assert max(watch.after, 1) + 1 < self.model.compact_revision
            assert error.oldest == self.model.compact_revision
            self._leave(watch)
            return False
        if batch is None:
            return False
        if owed:
            self._check_batch(batch, owed[0])
        else:
            assert may_progress
            assert (batch.revision, batch.events) == (self.model.revision, ())
            watch.progress_wanted = False
        watch.after = batch.revision
        assert watch.stream.revision == batch.revision
        return True

    def _leave(self, watch: _Watch) -> None:
        self.run(watch.stream.__aexit__(None, None, None))
        self.watches.remove(watch)

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
            assert batch is not None
            self._check_batch(batch, WatchBatch(batch.revision, tuple(self.model.events[revision])))
            assert batch.revision == revision

    # -- what always holds -------------------------------------------------------------------

    @invariant()
    def contents_agree(self) -> None:
        self._read_audit()
        everything = Range(KeyRange.everything())
        assert self.run(self.store.range(everything.keys)) == self.model.range(everything)

    @invariant()
    def counters_agree(self) -> None:
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
                self._leave(watch)
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
            except QuoracyError as error:
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
            told, error = self.run(read_to_the_end(watch.stream))
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


async def _next(stream: Watch) -> WatchBatch | None:
    return await anext(stream)


async def _peek(stream: Watch) -> WatchBatch | None:
    """What the watch tells without waiting."""
    reading = asyncio.ensure_future(anext(stream))
    await turns()
    reading.cancel()
    await asyncio.wait([reading])
    return None if reading.cancelled() else reading.result()


def _settings(*, examples: int, steps: int) -> settings:
    """So many by default; the soak profile decides for itself."""
    profile = settings()
    if profile.derandomize:
        return settings(profile, max_examples=examples, stateful_step_count=steps)
    return profile


TestMemoryMachine = MemoryMachine.TestCase
TestMemoryMachine.settings = _settings(examples=70, steps=60)
TestSqliteMachine = SqliteMachine.TestCase
TestSqliteMachine.settings = _settings(examples=30, steps=50)
