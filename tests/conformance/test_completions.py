"""What every store promises to those who begin an operation with a completion."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from quoracy.errors import (
    Compacted,
    FutureRevision,
    InvalidRequest,
    KeyNotFound,
    LeaseNotFound,
    NoSpace,
    Overloaded,
    QuoracyError,
    Rejected,
)
from quoracy.store import contention
from quoracy.store.api import Store
from quoracy.store.completion import Completion
from quoracy.store.contention import Place
from quoracy.store.model import (
    Compare,
    Delete,
    DeleteResult,
    KeyRange,
    Put,
    PutResult,
    Range,
    RangeResult,
    Txn,
    TxnResult,
    WaitFirst,
)
from quoracy.store.rules import Limits
from tests.support.asking import EVERYTHING, contents
from tests.support.engines import KEEP_ALL, Capability, Engine

_REFUSED: dict[str, tuple[Put | Delete | Txn, type[Rejected]]] = {
    "a rule": (Put(b""), InvalidRequest),
    "a rule of deletes": (Delete(b""), InvalidRequest),
    "a rule of transactions": (Txn(then=(Range(b"k", limit=0),)), InvalidRequest),
    "a lease": (Put(b"k", lease=77), LeaseNotFound),
    "a key": (Put(b"k", ignore_value=True), KeyNotFound),
    "a lease in a transaction": (Txn(then=(Put(b"k", lease=77),)), LeaseNotFound),
    "a revision": (Txn(then=(Range(b"k", at=10**9),)), FutureRevision),
}


class Watched(Completion):
    """A completion that notes what is called, and fails the test if that is too often."""

    def __init__(self, log: list[Any] | None = None, name: object = "") -> None:
        super().__init__()
        self.calls: list[str] = []
        self.applied_result: Any = None
        self.result: Any = None
        self.error: BaseException | None = None
        self._log = [] if log is None else log
        self._name = name
        self._ended = asyncio.Event()

    def applied(self, result: Any) -> None:
        assert not self.calls
        self.calls.append("applied")
        self.applied_result = result
        self._log.append(("applied", self._name))

    def reply(self, result: Any) -> None:
        del result
        assert self.calls[-1:] in (["applied"], [])
        self.calls.append("reply")

    def done(self, result: Any, error: BaseException | None) -> None:
        assert not self.is_done
        self.calls.append("done")
        self.result, self.error = result, error
        self._log.append(("done", self._name))
        self._ended.set()

    @property
    def is_done(self) -> bool:
        return "done" in self.calls

    async def over(self) -> None:
        await asyncio.wait_for(self._ended.wait(), 10)

    async def ended(self) -> Any:
        """The result; or raises the error.  Later it would be noticed if `done` was called again."""
        await self.over()
        if self.error is not None:
            raise self.error
        return self.result


def submitted(store: Store, op: Put | Delete | Txn, *more: Any) -> Watched:
    completion = Watched(*more)
    store.submit(op, completion)
    assert not completion.is_done, "done inside submit"
    return completion


def begun(store: Store, op: Range | WaitFirst) -> Watched:
    completion = Watched()
    store.read(op, completion)
    return completion


async def joined(store: Store) -> Place:
    return await contention.join(store, b"queue", (await store.grant(60)).id)


def waiting(store: Store, place: Place) -> Watched:
    return begun(store, WaitFirst(place.name, place.key, place.token))


# -- results and errors ------------------------------------------------------------------------


async def test_a_write_ends_once_with_the_result_of_its_coroutine(store: Store) -> None:
    put = submitted(store, Put(b"a", b"1"))
    first = await put.ended()
    assert first == PutResult(first.revision)
    prev = (await submitted(store, Put(b"a", b"2", prev_kv=True)).ended()).prev_kv
    assert prev.value == b"1"
    txn = await submitted(store, Txn((Compare.exists(b"a"),), (Put(b"b"), Range(b"b")))).ended()
    assert txn == TxnResult(
        first.revision + 2,
        True,
        (
            PutResult(first.revision + 2),
            RangeResult(first.revision + 2, (await store.range(b"b")).kvs, 1),
        ),
    )
    deleted = await submitted(store, Delete(EVERYTHING)).ended()
    assert deleted == DeleteResult(first.revision + 3, 2)
    assert put.calls.count("done") == 1


async def test_a_write_that_changes_nothing_ends_as_well(store: Store) -> None:
    before = (await store.put(b"k")).revision
    assert await submitted(store, Delete(b"missing")).ended() == DeleteResult(before, 0)
    failed = Txn((Compare.missing(b"k"),), (Put(b"k"),))
    assert await submitted(store, failed).ended() == TxnResult(before, False)


async def test_a_transaction_of_reads_ends_after_the_call(store: Store) -> None:
    kv = (await store.put(b"k", b"v")).revision
    result = await submitted(store, Txn(then=(Range(b"k"),))).ended()
    assert result.revision == kv
    assert result.results[0].kvs[0].value == b"v"


async def test_a_read_ends_with_what_is_there(store: Store) -> None:
    revision = (await store.put(b"k", b"v")).revision
    read = begun(store, Range(b"k"))
    result = await read.ended()
    assert (result.revision, result.kvs[0].value) == (revision, b"v")
    assert read.calls == ["done"]


@pytest.mark.parametrize("why", _REFUSED)
async def test_what_is_wrong_with_a_write_comes_through_done(store: Store, why: str) -> None:
    op, error = _REFUSED[why]
    completion = submitted(store, op)
    with pytest.raises(error):
        await completion.ended()
    assert completion.calls == ["done"]
    assert await contents(store) == {}


async def test_what_is_wrong_with_a_read_comes_through_done(store: Store) -> None:
    newest = (await store.put(b"k", b"2")).revision
    await store.compact(newest)
    refused: tuple[tuple[Range, type[Rejected]], ...] = (
        (Range(b""), InvalidRequest),
        (Range(b"k", at=newest + 100), FutureRevision),
        (Range(b"k", at=newest - 1), Compacted),
    )
    for op, error in refused:
        with pytest.raises(error):
            await begun(store, op).ended()


async def test_a_write_is_rejected_for_what_was_submitted_right_before_it(engine: Engine) -> None:
    engine.needs(Capability.ORDER)
    async with engine.open() as store:
        log: list[Any] = []
        exclusive = Txn((Compare.missing(b"k"),), (Put(b"k"),))
        first, second = submitted(store, exclusive, log, 1), submitted(store, exclusive, log, 2)
        third = submitted(store, Put(b"k", lease=77), log, 3)
        assert not (await second.ended()).succeeded
        assert first.result.succeeded
        with pytest.raises(LeaseNotFound):
            await third.ended()
        assert [name for what, name in log if what == "done"] == [1, 2, 3]


# -- order ---------------------------------------------------------------------------------------


async def test_writes_take_effect_and_end_in_the_order_of_submit(engine: Engine) -> None:
    engine.needs(Capability.ORDER)
    async with engine.open() as store:
        log: list[Any] = []
        ops = [Put(b"k", b"%d" % number) for number in range(50)]
        writes = [submitted(store, op, log, number) for number, op in enumerate(ops)]
        await writes[-1].ended()
        assert [name for what, name in log if what == "applied"] == list(range(50))
        assert [name for what, name in log if what == "done"] == list(range(50))
        revisions = [write.result.revision for write in writes]
        assert revisions == list(range(revisions[0], revisions[0] + 50))


async def test_a_write_is_applied_inside_submit_with_the_result_that_it_ends_with(
    engine: Engine,
) -> None:
    engine.needs(Capability.ORDER)
    async with engine.open() as store:
        write = submitted(store, Put(b"k"))
        assert "applied" in write.calls
        assert await write.ended() == write.applied_result


async def test_elsewhere_a_write_is_not_known_before_it_is_done(store: Store, engine: Engine) -> None:
    if not engine.lacks(Capability.ORDER):
        pytest.skip("it applies writes in this process")
    write = submitted(store, Put(b"k"))
    await write.ended()
    assert "applied" not in write.calls


class Chain(Watched):
    """Each write submits the next as soon as it is applied."""

    def __init__(self, store: Store, left: int, log: list[Any]) -> None:
        super().__init__(log, left)
        self._store, self._left = store, left
        self.next: Chain | None = None

    def applied(self, result: Any) -> None:
        super().applied(result)
        if self._left:
            self.next = Chain(self._store, self._left - 1, self._log)
            self._store.submit(Put(b"%d" % self._left), self.next)


async def test_applied_may_submit_again(engine: Engine) -> None:
    engine.needs(Capability.ORDER)
    async with engine.open() as store:
        for _ in range(3):  # with one writer, as the store sees it, the second time
            log: list[Any] = []
            first = last = Chain(store, 5, log)
            store.submit(Put(b"first"), first)
            while last.next is not None:
                last = last.next
            await last.ended()
            assert log == [(what, left) for what in ("applied", "done") for left in range(5, -1, -1)]


async def test_a_watch_is_ready_and_reads_see_it_before_the_write_is_done(
    store: Store, engine: Engine
) -> None:
    engine.needs(Capability.EVENTS_FIRST)
    log: list[Any] = []

    class Looking(Watched):
        def done(self, result: Any, error: BaseException | None) -> None:
            super().done(result, error)
            assert watch.revision >= result.revision
            log.append(begun(store, Range(b"k/1")))

    async with store.watch(KeyRange.prefix(b"k/")) as watch:

        def take() -> None:
            while (batch := watch.poll()) is not None:
                log.extend(event.kv.key for event in batch.events)

        assert watch.poll() is None
        watch.on_ready(take)
        write = Looking()
        store.submit(Put(b"k/1"), write)
        await write.ended()
        key, read = log
        assert key == b"k/1"
        assert (await read.ended()).count == 1


# -- waits for the front of a queue -----------------------------------------------------------------


async def test_a_wait_ends_when_its_key_is_the_oldest(store: Store) -> None:
    first, second = await joined(store), await joined(store)
    assert await waiting(store, first).ended() is not None
    wait = waiting(store, second)
    assert not wait.is_done
    left = await contention.leave(store, first)
    assert await wait.ended() == left


async def test_a_wait_ends_without_a_revision_when_its_key_is_gone(store: Store) -> None:
    first, second = await joined(store), await joined(store)
    await contention.leave(store, second)
    await contention.leave(store, first)
    assert await waiting(store, second).ended() is None


async def test_a_wait_is_over_before_the_write_that_ends_it_is_done(engine: Engine) -> None:
    engine.needs(Capability.ORDER)
    async with engine.open() as store:
        first, second = await joined(store), await joined(store)
        wait = waiting(store, second)
        leaving = submitted(store, contention.leaving(first))
        await leaving.ended()
        assert wait.result == leaving.result.revision


async def test_a_wait_that_is_abandoned_ends_with_an_error(store: Store) -> None:
    first, second = await joined(store), await joined(store)
    wait = waiting(store, second)
    await asyncio.sleep(0)
    wait.abandon()
    wait.abandon()
    with pytest.raises(QuoracyError):
        await wait.ended()
    await contention.leave(store, first)
    again = waiting(store, second)
    assert await again.ended() is not None
    assert wait.calls.count("done") == 1


async def test_a_write_that_is_abandoned_ends_all_the_same(store: Store) -> None:
    write = submitted(store, Put(b"k"))
    write.abandon()
    await write.over()
    assert write.calls.count("done") == 1


async def test_everything_ends_when_the_store_is_closed(engine: Engine) -> None:
    async with engine.open() as store:
        await joined(store)
        wait = waiting(store, await joined(store))
        write = submitted(store, Put(b"k"))
    for each in (wait, write):
        await each.over()
    with pytest.raises(QuoracyError):
        await submitted(store, Put(b"k")).ended()
    with pytest.raises(QuoracyError):
        await begun(store, Range(b"k")).ended()


# -- bounds --------------------------------------------------------------------------------------------


async def test_too_many_bytes_in_flight_are_refused(engine: Engine) -> None:
    engine.needs(Capability.ORDER)
    async with engine.open(limits=Limits(pending_bytes_max=1000)) as store:
        writes = [submitted(store, Put(b"%02d" % number, bytes(100))) for number in range(50)]
        await asyncio.gather(*[write.over() for write in writes])
        refused = [write for write in writes if write.error is not None]
        assert {type(write.error) for write in refused} == {Overloaded}
        assert {tuple(write.calls) for write in refused} == {("done",)}
        assert len(await contents(store)) == len(writes) - len(refused) < 50
        await store.put(b"later")


_QUOTA = 100_000


async def test_a_write_waits_until_history_has_given_way_and_those_behind_it_wait_as_well(
    engine: Engine,
) -> None:
    engine.needs(Capability.ORDER)
    async with engine.open(limits=Limits(storage_bytes_max=_QUOTA)) as store:
        log: list[Any] = []
        value = bytes(_QUOTA // 10)
        large = [submitted(store, Put(b"k", value), log, number) for number in range(30)]
        behind = submitted(store, Delete(b"k"), log, 30)
        last = submitted(store, Txn((Compare.missing(b"k"),), (Put(b"k"),)), log, 31)
        assert not large[20].calls
        assert not behind.calls
        assert (await last.ended()).succeeded
        assert [name for what, name in log if what == "applied"] == list(range(32))
        assert [name for what, name in log if what == "done"] == list(range(32))


async def test_if_there_is_no_history_to_give_way_a_write_ends_with_no_space(engine: Engine) -> None:
    engine.needs(Capability.ORDER)
    limits = Limits(storage_bytes_max=_QUOTA)
    async with engine.open(limits=limits, retention=KEEP_ALL) as store:
        value = bytes(_QUOTA // 10)
        writes = [submitted(store, Put(b"%d" % number, value)) for number in range(20)]
        deleting = submitted(store, Delete(EVERYTHING))
        assert (await deleting.ended()).deleted == 9
        assert {type(write.error) for write in writes[9:]} == {NoSpace}


async def test_what_waits_for_room_is_bounded_and_can_be_abandoned(engine: Engine) -> None:
    engine.needs(Capability.ORDER)
    limits = Limits(storage_bytes_max=_QUOTA, pending_bytes_max=_QUOTA // 2)
    async with engine.open(limits=limits) as store:
        value = bytes(_QUOTA // 10)
        for _ in range(9):
            await store.put(b"k", value)
        writes = [submitted(store, Put(b"k", value), None, number) for number in range(20)]
        writes[1].abandon()
        await asyncio.gather(*[write.over() for write in writes])
        assert [type(write.error) for write in writes[5:]] == [Overloaded] * 15
        assert writes[1].calls == ["done"]
        assert writes[1].error is not None
        assert {type(write.error) for write in (writes[0], *writes[2:5])} == {type(None)}


async def test_closing_the_store_ends_what_waits_for_room(engine: Engine) -> None:
    engine.needs(Capability.ORDER)
    async with engine.open(limits=Limits(storage_bytes_max=_QUOTA)) as store:
        value = bytes(_QUOTA // 10)
        writes = [submitted(store, Put(b"k", value)) for _ in range(12)]
        await asyncio.sleep(0)
    for write in writes:
        await write.over()
