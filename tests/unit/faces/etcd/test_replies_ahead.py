"""Answers that leave with the sync of what they tell of: what a lone client of a durable store gets."""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from quoracy.engines.embedded.engine import EmbeddedStore
from quoracy.engines.opening import open_embedded
from quoracy.faces.etcd.services.member import Identity
from quoracy.faces.etcd.serving.server import Face, serve_etcd
from quoracy.remote.dial import Channel, ChannelOptions, connect
from quoracy.remote.errors import CallLost
from quoracy.remote.translate import txn_payload
from quoracy.remote.urls import Address
from quoracy.store import contention
from quoracy.store.contention import Place, leaving
from quoracy.wire.etcd.rpc import (
    Compare,
    CompareResult,
    CompareTarget,
    PutRequest,
    PutResponse,
    RangeRequest,
    RangeResponse,
    RequestOp,
    ResponseHeader,
    TxnRequest,
    TxnResponse,
)
from quoracy.wire.grpc import GrpcError, StatusCode
from quoracy.wire.quoracy import WAIT_FIRST, WaitFirstRequest, WaitFirstResponse
from tests.support.failing_disk import break_disk
from tests.support.held_disk import HeldDisk

PUT, RANGE, TXN = "/etcdserverpb.KV/Put", "/etcdserverpb.KV/Range", "/etcdserverpb.KV/Txn"
_SOON_S = 10.0


class Served:
    """A server, and what it has had sent ahead."""

    def __init__(self, store: EmbeddedStore, face: Face, disk: HeldDisk, address: Address) -> None:
        self.store, self.face, self.disk = store, face, disk
        self._address = address

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[Channel]:
        channel = await connect(
            self._address, tls=None, server_name=None, timeout_s=10, options=ChannelOptions()
        )
        try:
            yield channel
        finally:
            await channel.close()


@pytest.fixture
async def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Served]:
    disk = HeldDisk(monkeypatch)
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        identity = Identity(cluster_id=1, member_id=2)
        async with (
            open_embedded(f"sqlite:{tmp_path / 'q.db'}") as store,
            serve_etcd(store, listener, host="127.0.0.1", identity=identity) as face,
        ):
            yield Served(store, face, disk, Address("127.0.0.1", listener.getsockname()[1]))


async def put(channel: Channel, value: bytes, *, timeout_s: float = 30.0) -> int:
    deadline = asyncio.get_running_loop().time() + 60
    request = PutRequest(key=b"k", value=value).encode()
    answer = await channel.unary(PUT, request, timeout_s=timeout_s, deadline=deadline)
    header = PutResponse.decode(answer).header
    assert header is not None
    return header.revision


async def get(channel: Channel) -> bytes:
    deadline = asyncio.get_running_loop().time() + 60
    request = RangeRequest(key=b"k").encode()
    answer = await channel.unary(RANGE, request, timeout_s=30.0, deadline=deadline)
    return RangeResponse.decode(answer).kvs[0].value


def _open_files() -> int:
    """(Where the system tells.)"""
    files = Path("/proc/self/fd")
    return len(list(files.iterdir())) if files.is_dir() else 0


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(_SOON_S):
        while not condition():  # noqa: ASYNC110 (nobody tells of these)
            await asyncio.sleep(0.001)


async def begun(served: Served, channel: Channel, value: bytes, **options: float) -> asyncio.Task[int]:
    """A put that is on its way to the disk, which is held, with its reply."""
    await put(channel, b"before")  # from now on there seems to be one writer
    served.disk.hold()
    task = asyncio.create_task(put(channel, value, **options))
    await until(lambda: served.disk.begun)
    (sync,) = served.disk.begun
    assert sync.reply is not None
    return task


async def test_what_was_answered_is_read_by_everybody_at_once(served: Served) -> None:
    async with served.connected() as one, served.connected() as another:
        for number in range(300):
            value = b"%d" % number
            assert await put(one, value) == number + 2
            assert await get(another) == value
            assert await get(one) == value


async def test_a_transaction_of_any_shape_is_answered_like_that_too(served: Served) -> None:
    swap = TxnRequest(
        compare=[Compare(result=CompareResult.GREATER, target=CompareTarget.VERSION, key=b"k")],
        success=[RequestOp(request_put=PutRequest(key=b"k", value=b"new", prev_kv=True))],
        failure=[RequestOp(request_range=RangeRequest(key=b"k"))],
    )
    async with served.connected() as channel:
        await put(channel, b"before")
        served.disk.hold()
        deadline = asyncio.get_running_loop().time() + 60
        asked = channel.unary(TXN, swap.encode(), timeout_s=30.0, deadline=deadline)
        task = asyncio.ensure_future(asked)
        await until(lambda: served.disk.begun)
        assert served.disk.begun[0].reply is not None
        served.disk.release()
        answer = TxnResponse.decode(await asyncio.wait_for(task, _SOON_S))
        assert answer.succeeded
        response = answer.responses[0].response_put
        assert response is not None
        assert response.prev_kv is not None
        assert response.prev_kv.value == b"before"


async def test_no_answer_leaves_before_the_disk_has_it(served: Served) -> None:
    async with served.connected() as channel:
        task = await begun(served, channel, b"new")
        assert await get(channel) == b"before"  # which is written while the reply is made, and waits
        assert not task.done()
        served.disk.release()
        assert await asyncio.wait_for(task, _SOON_S) == 3
        assert await get(channel) == b"new"


async def test_others_on_the_connection_do_not_wait_for_the_disk(served: Served) -> None:
    async with served.connected() as channel:
        task = await begun(served, channel, b"new")
        served.disk.release()
        for _ in range(50):  # answers that leave around the moment in which the reply does
            assert await get(channel) in (b"before", b"new")
        assert await asyncio.wait_for(task, _SOON_S) == 3


async def test_a_failure_is_told_instead_of_the_answer(served: Served) -> None:
    async with served.connected() as channel:
        await put(channel, b"before")
        break_disk(served.store)
        with pytest.raises(GrpcError) as caught:
            await put(channel, b"lost")
        assert caught.value.code is not StatusCode.OK
        assert await get(channel) == b"before"


async def test_a_deadline_is_told_instead_of_an_answer_that_has_not_left(served: Served) -> None:
    async with served.connected() as channel:
        task = await begun(served, channel, b"new", timeout_s=0.05)
        with pytest.raises(GrpcError) as caught:
            await asyncio.wait_for(task, _SOON_S)
        assert caught.value.code is StatusCode.DEADLINE_EXCEEDED
        served.disk.release()
        assert await put(channel, b"next") == 4
        assert await get(channel) == b"next"


async def test_a_client_that_leaves_takes_its_descriptor_with_it(served: Served) -> None:
    open_before = _open_files()
    async with served.connected() as stays:
        async with served.connected() as leaves:
            task = await begun(served, leaves, b"left behind")
        with pytest.raises(CallLost):
            await task
        await until(lambda: len(served.face.sessions) == 1)
        served.disk.release()
        await until(lambda: served.store.statistics().durable_revision == 3)
        assert await get(stays) == b"left behind"
    await until(lambda: not served.face.sessions)
    await until(lambda: _open_files() <= open_before)


async def test_many_clients_get_their_own_answers(served: Served) -> None:
    async def write(number: int) -> list[int]:
        async with served.connected() as channel:
            return [await put(channel, b"%d" % number) for _ in range(100)]

    revisions = await asyncio.gather(*map(write, range(8)))
    assert sorted(itertools.chain(*revisions)) == list(range(2, 802))
    assert all(each == sorted(each) for each in revisions)


# -- who waits for the front of a queue is told with the sync of what another one did


QUEUE = b"jobs/nightly"


async def places(served: Served, count: int) -> list[Place]:
    lease = [(await served.store.grant(3600)).id for _ in range(count)]
    return [await contention.join(served.store, QUEUE, id) for id in lease]


async def wait_first(channel: Channel, place: Place) -> int:
    request = WaitFirstRequest(name=QUEUE, key=place.key, token=place.token).encode()
    deadline = asyncio.get_running_loop().time() + 60
    answer = await channel.unary(WAIT_FIRST, request, timeout_s=30.0, deadline=deadline)
    response = WaitFirstResponse.decode(answer)
    assert response.header is not None
    assert not response.is_gone
    assert response.encode() == answer
    return response.header.revision


async def leave(channel: Channel, place: Place) -> int:
    deadline = asyncio.get_running_loop().time() + 60
    answer = await channel.unary(TXN, txn_payload(leaving(place)), timeout_s=30.0, deadline=deadline)
    header = TxnResponse.decode(answer).header
    assert header is not None
    return header.revision


async def waiting(served: Served, channel: Channel, place: Place) -> asyncio.Task[int]:
    """A wait that the store knows of."""
    before = served.store.statistics().watchers_count
    task = asyncio.create_task(wait_first(channel, place))
    await until(lambda: served.store.statistics().watchers_count == before + 1)
    return task


async def released(
    served: Served, holder: Channel, waiter: Channel
) -> tuple[Place, asyncio.Task[int], asyncio.Task[int]]:
    """Somebody waits, and what it waits for is on its way to the disk, which is held."""
    first, second = await places(served, 2)
    told = await waiting(served, waiter, second)
    await put(holder, b"before")  # from now on there seems to be one writer
    served.disk.hold()
    left = asyncio.create_task(leave(holder, first))
    await until(lambda: served.disk.begun)
    return second, told, left


async def test_who_waits_is_told_with_the_sync_of_the_release(served: Served) -> None:
    async with served.connected() as holder, served.connected() as waiter:
        _, told, left = await released(served, holder, waiter)
        reply = served.disk.begun[0].reply
        assert reply is not None
        assert not told.done()
        served.disk.release()
        revision = await asyncio.wait_for(told, _SOON_S)
        assert revision == await asyncio.wait_for(left, _SOON_S)
        # It was the reply of the one who waited, and not of the one who left.
        header = ResponseHeader(cluster_id=1, member_id=2, revision=revision, raft_term=2)
        message = WaitFirstResponse(header=header).encode()
        assert b"\0" + len(message).to_bytes(4, "big") + message in reply.data


async def test_whoever_has_been_told_finds_the_release_done(served: Served) -> None:
    async with served.connected() as holder, served.connected() as waiter:
        for _ in range(100):
            first, second = await places(served, 2)
            told = await waiting(served, waiter, second)
            await put(holder, b"before")
            left = asyncio.create_task(leave(holder, first))
            revision = await asyncio.wait_for(told, _SOON_S)
            assert await get(waiter) == b"before"
            assert served.store.statistics().durable_revision >= revision
            assert await asyncio.wait_for(left, _SOON_S) == revision
            assert await leave(waiter, second) == revision + 1


async def test_one_who_asks_while_the_release_is_on_its_way_is_not_told_early(served: Served) -> None:
    async with served.connected() as holder, served.connected() as waiter:
        second, told, left = await released(served, holder, waiter)
        again = await waiting(served, waiter, second)  # as after a lost connection
        assert await get(waiter) == b"before"
        assert not told.done()
        assert not again.done()
        served.disk.release()
        revision = await asyncio.wait_for(left, _SOON_S)
        assert await asyncio.wait_for(told, _SOON_S) == revision
        assert await asyncio.wait_for(again, _SOON_S) == revision


async def test_nobody_is_told_of_a_release_that_another_one_stands_before(served: Served) -> None:
    async with served.connected() as holder, served.connected() as waiter:
        first, second, third = await places(served, 3)
        told = await waiting(served, waiter, third)
        await put(holder, b"before")
        assert await leave(holder, second)  # whom it watched: the first is still there
        assert await get(waiter) == b"before"
        assert not told.done()
        revision = await leave(holder, first)
        assert await asyncio.wait_for(told, _SOON_S) == revision


async def test_nobody_is_told_of_a_release_that_the_disk_has_not_taken(served: Served) -> None:
    async with served.connected() as holder, served.connected() as waiter:
        first, second = await places(served, 2)
        told = await waiting(served, waiter, second)
        await put(holder, b"before")
        break_disk(served.store)
        with pytest.raises(GrpcError):
            await leave(holder, first)
        assert await get(waiter) == b"before"
        assert not told.done()
        told.cancel()
