"""What a client says when the network fails: the truth about whether it happened, and in time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from quoracy.errors import Indeterminate, StoreClosed, Unavailable
from quoracy.remote.dial import ChannelOptions
from quoracy.remote.store import RemoteStore, open_remote
from quoracy.remote.urls import Address, Target
from quoracy.store.model import Compare, Delete, Put, Range, Txn
from tests.support.asking import contents, eventually, get, turns
from tests.support.engines import Engines
from tests.support.tcp_proxy import TcpProxy, tcp_proxy

# Silence is noticed soon, so that a test need not wait for it.
_IMPATIENT = ChannelOptions(silence_s=0.3, answer_s=0.3)


@pytest.fixture
async def port(engines: Engines) -> AsyncIterator[int]:
    # Not the 3.5.1 at hand: it ends when a client hangs up while its transaction reads (etcd#14110).
    async with engines.get("remote-etcd34").open() as store:
        assert isinstance(store, RemoteStore)
        yield store.target.addresses[0].port


@asynccontextmanager
async def _through(
    *ports: int, timeout_s: float = 2.0, options: ChannelOptions = _IMPATIENT
) -> AsyncIterator[RemoteStore]:
    target = Target(tuple(Address("127.0.0.1", port) for port in ports))
    async with open_remote(target, timeout_s=timeout_s, options=options) as store:
        yield store


@pytest.fixture
async def proxy(port: int) -> AsyncIterator[TcpProxy]:
    async with tcp_proxy(port) as proxy:
        yield proxy


# -- writes -----------------------------------------------------------------------------------


async def test_a_write_whose_answer_was_lost_is_indeterminate_and_not_sent_again(
    port: int, proxy: TcpProxy
) -> None:
    async with _through(port) as direct, _through(proxy.port, timeout_s=20) as store:
        await store.put(b"before")
        proxy.hold_answers()
        writing = asyncio.ensure_future(store.put(b"k", b"v"))

        async def carried_out() -> bool:
            return await get(direct, b"k") is not None

        await eventually(carried_out)
        proxy.cut()
        with pytest.raises(Indeterminate, match=r"put of b'k'.*not sent again"):
            await writing
        proxy.pass_all()
        kv = await get(store, b"k")
        assert kv is not None
        assert kv.version == 1


@pytest.mark.parametrize(
    "txn",
    [
        Txn(then=(Put(b"k"),)),
        Txn((Compare.exists(b"k"),), otherwise=(Delete(b"k"),)),
        Txn(then=(Txn(then=(Put(b"k"),)),)),
    ],
)
async def test_every_write_in_a_transaction_makes_it_one(proxy: TcpProxy, txn: Txn) -> None:
    async with _through(proxy.port) as store:
        await store.put(b"before")
        proxy.hold_answers()
        writing = asyncio.ensure_future(store.txn(txn))
        await proxy.answers_held.wait()
        proxy.cut()
        with pytest.raises(Indeterminate, match="transaction"):
            await writing
        proxy.pass_all()


async def test_other_writes_are_indeterminate_too(proxy: TcpProxy) -> None:
    async with _through(proxy.port) as store:
        lease = (await store.grant(60)).id
        await store.put(b"k")
        for write in (
            lambda: store.delete(b"k"),
            lambda: store.grant(60),
            lambda: store.revoke(lease),
            lambda: store.compact(2),
        ):
            await get(store, b"k")  # connected
            proxy.hold_answers()
            writing = asyncio.ensure_future(write())
            await proxy.answers_held.wait()
            proxy.cut()
            with pytest.raises(Indeterminate):
                await writing
            proxy.pass_all()


async def test_a_write_that_cannot_leave_is_unavailable_and_did_not_happen(proxy: TcpProxy) -> None:
    async with _through(proxy.port, timeout_s=0.5) as store:
        await store.put(b"before")
        await proxy.refuse()
        await turns()  # the client has noticed
        with pytest.raises(Unavailable, match=rf"put of b'k'.*127\.0\.0\.1:{proxy.port}"):
            await store.put(b"k")
        await proxy.listen()
    async with _through(proxy.port) as store:
        assert set(await contents(store)) == {b"before"}


async def test_a_write_waits_for_a_server_that_comes_back(proxy: TcpProxy) -> None:
    async with _through(proxy.port, timeout_s=20) as store:
        await store.put(b"before")
        await proxy.refuse()
        await turns()  # the client has noticed
        writing = asyncio.ensure_future(store.put(b"k"))
        await turns()
        await proxy.listen()
        assert (await writing).revision == 3


async def test_a_wrong_address_is_told_at_once() -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        async with _through(reserved.getsockname()[1], timeout_s=60) as store:
            async with asyncio.timeout(20):
                with pytest.raises(Unavailable, match="refused"):
                    await store.put(b"k")


# -- silence ----------------------------------------------------------------------------------


async def test_in_a_black_hole_a_write_is_indeterminate_and_a_read_unavailable(
    proxy: TcpProxy,
) -> None:
    async with _through(proxy.port, timeout_s=0.3) as store:
        await store.put(b"before")
        proxy.hold_all()
        results = await asyncio.gather(store.put(b"k"), store.range(b"before"), return_exceptions=True)
        assert [type(result) for result in results] == [Indeterminate, Unavailable]
        # The connection itself is found dead and replaced; a new one is let through.
        proxy.pass_all()
        proxy.cut()
        assert set(await contents(store)) >= {b"before"}


async def test_a_black_holed_connection_is_noticed_and_another_server_taken(port: int) -> None:
    async with tcp_proxy(port) as one, tcp_proxy(port) as two:
        async with _through(one.port, two.port, timeout_s=10) as store:
            await store.put(b"k", b"v")
            assert (one.connections_count, two.connections_count) == (1, 0)
            one.hold_all()
            assert await contents(store) == {b"k": b"v"}
            assert two.connections_count == 1


async def test_a_server_that_accepts_and_says_nothing_is_not_reached() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        async with _through(silent.getsockname()[1], timeout_s=0.3) as store:
            with pytest.raises(Unavailable, match="answer"):
                await store.range(b"k")


async def test_a_server_that_speaks_something_else_is_named() -> None:
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        async with _through(port) as store:
            with pytest.raises(Unavailable, match="HTTP/2"):
                await store.range(b"k")


# -- reads ------------------------------------------------------------------------------------


async def test_a_read_whose_connection_breaks_is_asked_again_elsewhere(port: int) -> None:
    async with tcp_proxy(port) as one, tcp_proxy(port) as two:
        async with _through(one.port, two.port, timeout_s=10) as store:
            lease = (await store.grant(60)).id
            await store.put(b"k", b"v", lease=lease)
            for ask in (
                lambda: store.range(b"k"),
                lambda: store.txn(Txn((Compare.exists(b"k"),), (Range(b"k"),))),
                lambda: store.time_to_live(lease),
                store.leases,
                store.hash,
                store.status,
                lambda: store.keep_alive(lease),
            ):
                one.hold_answers()
                two.hold_answers()
                asking = asyncio.ensure_future(ask())
                waiting = [asyncio.ensure_future(proxy.answers_held.wait()) for proxy in (one, two)]
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in waiting:
                    task.cancel()
                one.cut()
                two.cut()
                one.pass_all()
                two.pass_all()
                assert await asking is not None


async def test_a_renewal_that_never_gets_through_may_have_happened(proxy: TcpProxy) -> None:
    async with _through(proxy.port, timeout_s=0.5) as store:
        lease = (await store.grant(60)).id
        await store.keep_alive(lease)
        proxy.hold_answers()
        with pytest.raises(Indeterminate, match="keep-alive of lease"):
            await store.keep_alive(lease)
        proxy.pass_all()
        proxy.cut()
        assert (await store.keep_alive(lease)).ttl_s == 60


# -- giving up and closing --------------------------------------------------------------------


async def test_giving_up_at_any_moment_leaves_the_store_usable(proxy: TcpProxy) -> None:
    async with _through(proxy.port) as store:
        lease = (await store.grant(60)).id
        for moment in range(25):
            for ask in (
                store.range(b"k"),
                store.put(b"k"),
                store.keep_alive(lease),
                store.status(),
            ):
                asking = asyncio.ensure_future(ask)
                await turns(moment)
                asking.cancel()
                await asyncio.wait([asking])
                assert asking.cancelled() or asking.exception() is None
        assert (await store.put(b"last")).revision >= 2
        assert (await store.keep_alive(lease)).ttl_s == 60


async def test_giving_up_on_entering_a_watch_leaves_nothing_behind(proxy: TcpProxy) -> None:
    async with _through(proxy.port) as store:
        await store.put(b"k")
        for moment in range(25):
            entering = asyncio.ensure_future(store.watch(b"k").__aenter__())
            await turns(moment)
            entering.cancel()
            await asyncio.wait([entering])
            if not entering.cancelled():
                await entering.result().__aexit__(None, None, None)
        assert (await store.status()).watchers_count == 0
        async with store.watch(b"k") as stream:
            revision = (await store.put(b"k")).revision
            assert (await anext(stream)).revision == revision


async def test_closing_ends_what_waits_and_takes_no_longer_than_it_should(proxy: TcpProxy) -> None:
    async with _through(proxy.port, timeout_s=60) as store:
        await store.put(b"k")
        proxy.hold_all()
        waiting = [
            asyncio.ensure_future(ask)
            for ask in (store.put(b"k"), store.range(b"k"), store.keep_alive(7))
        ]
        await turns()
    for ended in await asyncio.gather(*waiting, return_exceptions=True):
        assert isinstance(ended, StoreClosed | Unavailable | Indeterminate)


async def test_opening_and_closing_leaves_no_tasks_and_no_sockets(port: int) -> None:
    async def round_trip() -> None:
        async with _through(port) as store, store.watch(b"k") as stream:
            await store.put(b"k")
            stream.request_progress()
            assert (await anext(stream)).events
            await store.keep_alive((await store.grant(60)).id)

    await round_trip()
    before = len(os.listdir("/proc/self/fd")), len(asyncio.all_tasks())
    for _ in range(30):
        await round_trip()

    async def all_gone() -> bool:
        return (len(os.listdir("/proc/self/fd")), len(asyncio.all_tasks())) <= before

    await eventually(all_gone)


async def test_many_requests_at_once_share_one_connection(proxy: TcpProxy) -> None:
    async with _through(proxy.port, timeout_s=30, options=ChannelOptions()) as store:
        results = await asyncio.gather(*(store.put(b"%d" % i, bytes(1000)) for i in range(2000)))
        assert sorted(result.revision for result in results) == list(range(2, 2002))
        assert proxy.connections_count == 1


async def test_large_answers_and_requests_come_whole(proxy: TcpProxy) -> None:
    async with _through(proxy.port, timeout_s=30, options=ChannelOptions()) as store:
        value = bytes(range(256)) * 4096
        await asyncio.gather(*(store.put(b"%02d" % i, value) for i in range(20)))
        found = await contents(store)
        assert len(found) == 20
        assert set(found.values()) == {value}
        with contextlib.suppress(Unavailable):
            await store.put(b"k", value)
