"""Writes without a task: the same results, the same errors, each write once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from quoracy.engines.etcd.engine import EtcdStore
from quoracy.engines.etcd.opening import open_etcd
from quoracy.errors import Indeterminate, InvalidRequest, KeyNotFound, LeaseNotFound, Unavailable
from quoracy.remote.urls import Address, Target
from quoracy.store.legacy import Begins, InProcess
from quoracy.store.model import Compare, Delete, Put, PutResult, Range, Txn, TxnResult
from tests.support.etcd_cluster import EtcdCluster
from tests.support.tcp_proxy import TcpProxy


@pytest.fixture
async def store(proxy: TcpProxy) -> AsyncIterator[EtcdStore]:
    async with open_etcd(Target((Address("127.0.0.1", proxy.port),))) as store:
        yield store


async def _begun(store: EtcdStore, op: Put | Txn) -> PutResult | TxnResult:
    done: asyncio.Future[PutResult | TxnResult] = asyncio.get_running_loop().create_future()

    def on_done(result: PutResult | TxnResult | None, error: BaseException | None) -> None:
        if error is not None:
            done.set_exception(error)
        else:
            assert result is not None
            done.set_result(result)

    assert store.begin(op, on_done)
    assert not done.done(), "called before it returned"
    return await done


async def test_it_begins_but_is_not_in_process(store: EtcdStore) -> None:
    assert isinstance(store, Begins)
    assert not isinstance(store, InProcess)


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


async def test_what_is_not_plain_or_only_reads_goes_the_long_way(store: EtcdStore) -> None:
    assert not store.begin(Txn((), (Range(b"k"),), ()), lambda *_: None)
    assert not store.begin(Txn((), (), (Range(b"k"),)), lambda *_: None)
    assert not store.begin(Txn((), (Txn((), (Put(b"k"),)),)), lambda *_: None)
    with pytest.raises(InvalidRequest):
        store.begin(Put(b""), lambda *_: None)


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


async def test_without_a_connection_nothing_begins(store: EtcdStore, proxy: TcpProxy) -> None:
    await proxy.refuse()
    proxy.cut()
    async with asyncio.timeout(10):
        while store.remote.current_address is not None:  # noqa: ASYNC110 (no event says so)
            await asyncio.sleep(0.005)
    outcomes: list[object] = []
    try:
        begun = store.begin(Put(b"k"), lambda *outcome: outcomes.append(outcome))
    except Unavailable:
        begun = False  # it is known by now that the cluster does not answer
    assert (begun, outcomes) == (False, [])
