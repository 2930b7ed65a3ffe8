"""Operations begun on a `RemoteStore`: completed once, later, and bounded in number and in bytes."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from quoracy.engines.opening import open_embedded
from quoracy.errors import InvalidRequest, KeyNotFound, Overloaded, StoreClosed, Unavailable
from quoracy.faces.etcd.services.member import Identity
from quoracy.faces.etcd.serving.server import serve_etcd
from quoracy.remote import submission
from quoracy.remote.store import RemoteStore, open_remote
from quoracy.remote.urls import Address, Target
from quoracy.store.coroutines import FutureCompletion
from quoracy.store.model import Delete, Put, Range, Txn


@asynccontextmanager
async def served() -> AsyncIterator[RemoteStore]:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        identity = Identity(cluster_id=1, member_id=2)
        async with (
            open_embedded("memory:") as store,
            serve_etcd(store, listener, host="127.0.0.1", identity=identity),
            open_remote(Target((Address("127.0.0.1", port),))) as remote,
        ):
            yield remote


def begun(store: RemoteStore, op: Put | Delete | Txn | Range) -> FutureCompletion:
    completion = FutureCompletion(asyncio.get_running_loop())
    if isinstance(op, Range):
        store.read(op, completion)
    else:
        store.submit(op, completion)
        assert not completion.future.done(), "done within `submit`"
    return completion


@pytest.mark.parametrize("connected", [False, True])
async def test_every_operation_is_completed_with_and_without_a_connection(connected: bool) -> None:
    async with served() as store:
        if connected:
            await store.range(b"k")
        put, txn = begun(store, Put(b"k", b"v")), begun(store, Txn((), (Put(b"l"),)))
        await asyncio.gather(put.future, txn.future)
        found = await begun(store, Range(b"k")).future
        assert found.kvs[0].value == b"v"
        assert (await begun(store, Delete(b"k")).future).deleted == 1


async def test_errors_come_through_done() -> None:
    async with served() as store:
        await store.range(b"k")
        with pytest.raises(InvalidRequest):
            await begun(store, Put(b"")).future
        with pytest.raises(InvalidRequest):
            await begun(store, Range(b"")).future
        with pytest.raises(KeyNotFound):
            await begun(store, Put(b"none", ignore_value=True)).future


@pytest.mark.parametrize(("bound", "most"), [("IN_FLIGHT_MAX", 2), ("IN_FLIGHT_BYTES_MAX", 250)])
async def test_operations_in_flight_are_bounded(
    monkeypatch: pytest.MonkeyPatch, bound: str, most: int
) -> None:
    monkeypatch.setattr(submission, bound, most)
    async with served() as store:
        first, second, third = [begun(store, Put(b"k%d" % each, b"v" * 100)) for each in range(3)]
        with pytest.raises(Overloaded):
            await third.future
        await asyncio.gather(first.future, second.future)
        await begun(store, Put(b"k", b"v" * 100)).future  # there is room again
        assert (await store.range(b"k2")).count == 0


async def test_a_write_that_was_not_sent_yet_can_be_abandoned() -> None:
    async with served() as store:
        write = begun(store, Put(b"k"))  # there is no connection
        write.abandon()
        with pytest.raises(Unavailable, match="gave it up"):
            await write.future
        assert (await store.range(b"k")).count == 0


async def test_a_store_that_is_closed_completes_what_waits_for_a_connection() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        nobody.listen()  # and never answers
        async with open_remote(Target((Address("127.0.0.1", nobody.getsockname()[1]),))) as store:
            write = begun(store, Put(b"k"))
            await asyncio.sleep(0)
        assert write.future.done()
        with pytest.raises(StoreClosed):
            await write.future
