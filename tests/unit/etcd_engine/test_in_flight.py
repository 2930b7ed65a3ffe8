"""Operations without a task: the same results, the same errors, each write once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from quoracy.engines.etcd.engine import EtcdStore
from quoracy.engines.etcd.opening import open_etcd
from quoracy.errors import Indeterminate, InvalidRequest, KeyNotFound, LeaseNotFound, Unavailable
from quoracy.remote.urls import Address, Target
from quoracy.store import contention
from quoracy.store.coroutines import FutureCompletion
from quoracy.store.model import (
    Compare,
    Delete,
    Put,
    PutResult,
    Range,
    RangeResult,
    Txn,
    TxnResult,
    WaitFirst,
)
from tests.support.etcd_cluster import EtcdCluster
from tests.support.tcp_proxy import TcpProxy


@pytest.fixture
async def store(proxy: TcpProxy) -> AsyncIterator[EtcdStore]:
    async with open_etcd(Target((Address("127.0.0.1", proxy.port),))) as store:
        yield store


async def _begun(store: EtcdStore, op: Put | Txn) -> PutResult | TxnResult:
    completion = FutureCompletion(asyncio.get_running_loop())
    store.submit(op, completion)
    assert not completion.future.done(), "done within `submit`"
    result: PutResult | TxnResult = await completion.future
    return result


async def test_put_is_here_when_it_is_done(store: EtcdStore) -> None:
    await store.put(b"k", b"old")
    result = await _begun(store, Put(b"k", b"v", prev_kv=True))
    assert isinstance(result, PutResult)
    assert (result.revision, store.replica.revision) == (3, 3)
    assert result.prev_kv is not None
    assert (result.prev_kv.key, result.prev_kv.value) == (b"k", b"old")


async def test_many_at_once_are_all_done(store: EtcdStore) -> None:
    results = await asyncio.gather(*[_begun(store, Put(b"k%d" % each)) for each in range(300)])
    assert sorted(result.revision for result in results) == list(range(2, 302))


async def test_transaction_is_done_or_not(store: EtcdStore) -> None:
    create = Txn((Compare.version(b"k", "=", 0),), (Put(b"k", b"v"), Delete(b"other")))
    first, second = await _begun(store, create), await _begun(store, create)
    assert isinstance(first, TxnResult)
    assert isinstance(second, TxnResult)
    assert (first.succeeded, second.succeeded) == (True, False)


async def test_a_transaction_that_fails_reads_what_it_asked_for_then(store: EtcdStore) -> None:
    await store.put(b"k", b"taken")
    create = Txn((Compare.version(b"k", "=", 0),), (Put(b"k", b"v"),), (Range(b"k"),))
    result = await _begun(store, create)
    assert isinstance(result, TxnResult)
    assert not result.succeeded
    assert result == await store.txn(create)


async def test_transactions_that_only_read_are_done_as_well(store: EtcdStore) -> None:
    await store.put(b"k", b"v")
    for txn in (
        Txn((), (Range(b"k"),), ()),
        Txn((), (Range(b"k", serializable=True),), ()),
        Txn((), (Range(b"k", at=2),), ()),
    ):
        result = await _begun(store, txn)
        assert isinstance(result, TxnResult)
        (found,) = result.results
        assert isinstance(found, RangeResult)
        assert found.kvs[0].value == b"v"


async def test_what_breaks_a_rule_ends_with_the_error(store: EtcdStore) -> None:
    with pytest.raises(InvalidRequest):
        await _begun(store, Put(b""))


async def test_refusals_are_explained(store: EtcdStore) -> None:
    with pytest.raises(LeaseNotFound):
        await _begun(store, Put(b"k", lease=77))
    with pytest.raises(KeyNotFound) as caught:
        await _begun(store, Put(b"k", ignore_value=True))
    assert caught.value.key == b"k"


async def test_lost_answer_leaves_it_open_and_the_write_is_sent_once(
    store: EtcdStore, proxy: TcpProxy, etcd: EtcdCluster
) -> None:
    proxy.hold_answers()
    writing = asyncio.create_task(_begun(store, Put(b"k", b"v")))
    async with open_etcd(etcd.target) as other, other.watch(b"k", after=1) as stream:
        assert (await anext(stream)).events[0].kv.version == 1
        proxy.cut()
        with pytest.raises(Indeterminate):
            await writing
        proxy.pass_all()
        assert (await other.range(b"k")).kvs[0].version == 1


async def test_without_a_connection_it_is_tried_until_its_time_is_over(
    proxy: TcpProxy, etcd: EtcdCluster
) -> None:
    async with open_etcd(Target((Address("127.0.0.1", proxy.port),)), timeout_s=0.3) as store:
        await proxy.refuse()
        proxy.cut()
        async with asyncio.timeout(10):
            while store.remote.current_address is not None:  # noqa: ASYNC110 (no event says so)
                await asyncio.sleep(0.005)
        with pytest.raises(Unavailable):
            await _begun(store, Put(b"k"))
        async with open_etcd(etcd.target) as other:
            assert not (await other.range(b"k")).kvs


async def test_reads_and_waits_that_are_given_up_end(store: EtcdStore, proxy: TcpProxy) -> None:
    first = await contention.join(store, b"q", (await store.grant(60)).id)
    second = await contention.join(store, b"q", (await store.grant(60)).id)
    assert first.token < second.token
    proxy.hold_answers()
    ops = (Range(b"k"), WaitFirst(second.name, second.key, second.token))
    for op in ops:
        completion = FutureCompletion(asyncio.get_running_loop())
        store.read(op, completion)
        completion.abandon()
        with pytest.raises(Unavailable, match=r"gave|given up"):
            await completion.future
    proxy.pass_all()


async def test_watches_are_ready_before_a_write_is_done(store: EtcdStore) -> None:
    order: list[str] = []

    class Noted(FutureCompletion):
        def done(self, result: object, error: BaseException | None) -> None:
            order.append("done")
            super().done(result, error)

    async with store.watch(b"k") as watch:

        def ready() -> None:
            while watch.poll() is not None:
                order.append("event")

        watch.on_ready(ready)
        for _ in range(20):
            completion = Noted(asyncio.get_running_loop())
            store.submit(Put(b"k"), completion)
            await completion.future
    assert order == ["event", "done"] * 20


async def test_an_answer_that_comes_while_the_store_is_closed_ends_the_write(
    proxy: TcpProxy, etcd: EtcdCluster
) -> None:
    async with open_etcd(Target((Address("127.0.0.1", proxy.port),))) as store:
        proxy.hold_answers()
        completion = FutureCompletion(asyncio.get_running_loop())
        store.submit(Put(b"k"), completion)
        async with open_etcd(etcd.target) as other, other.watch(b"k", after=1) as stream:
            await anext(stream)
        await store.close()
        proxy.pass_all()
        with pytest.raises(Indeterminate):
            await completion.future
