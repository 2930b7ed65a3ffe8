"""Waits for the front of a queue on the server's side: answered once, and lost with nothing."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from quoracy.engines.embedded.engine import EmbeddedStore
from quoracy.engines.opening import open_embedded
from quoracy.errors import LeaseLost, Unavailable
from quoracy.faces.etcd.services.member import Identity
from quoracy.faces.etcd.serving import server
from quoracy.faces.etcd.serving.server import serve_etcd
from quoracy.remote import submission
from quoracy.remote.store import RemoteStore, open_remote
from quoracy.remote.urls import Address, Target
from quoracy.store import contention
from quoracy.store.api import Store
from quoracy.store.contention import Place
from quoracy.store.coroutines import FutureCompletion
from quoracy.store.model import WaitFirst
from tests.differential.etcd_server import etcd_35_program, running_etcd

NAME = b"jobs/nightly"


@asynccontextmanager
async def served() -> AsyncIterator[tuple[EmbeddedStore, RemoteStore]]:
    """A store, and the same store by way of a server in this process."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        async with (
            open_embedded("memory:") as store,
            serve_etcd(store, listener, host="127.0.0.1", identity=Identity(cluster_id=1, member_id=2)),
            open_remote(Target((Address("127.0.0.1", port),))) as remote,
        ):
            yield store, remote


async def joined(store: Store) -> Place:
    return await contention.join(store, NAME, (await store.grant(3600)).id)


async def watchers_at(store: EmbeddedStore, count: int) -> None:
    """Wait until so many wait on the server's side; each watches the one before it there."""
    async with asyncio.timeout(10):
        while store.statistics().watchers_count != count:  # noqa: ASYNC110 (the server tells nobody)
            await asyncio.sleep(0.001)


def waiting_for(store: Store, place: Place) -> asyncio.Task[int | None]:
    return asyncio.create_task(store.wait_first(place.name, place.key, place.token))


async def test_the_server_tells_who_is_next_at_the_revision_of_the_release() -> None:
    async with served() as (store, remote):
        first, second, third = [await joined(remote) for _ in range(3)]
        waiting = [waiting_for(remote, place) for place in (second, third)]
        await watchers_at(store, 2)
        released_at = await contention.leave(remote, first)
        assert await waiting[0] == released_at
        assert not waiting[1].done()
        await contention.leave(remote, second)
        assert await waiting[1] is not None


async def test_a_place_that_is_gone_is_told_as_gone() -> None:
    async with served() as (store, remote):
        first, second = await joined(remote), await joined(remote)
        waiting = waiting_for(remote, second)
        await watchers_at(store, 1)
        await remote.revoke(second.lease)
        await contention.leave(remote, first)
        assert await waiting is None
        with pytest.raises(LeaseLost, match="is gone"):
            await contention.wait_first(remote, second)


async def test_a_wait_that_is_given_up_leaves_nothing_on_the_server() -> None:
    async with served() as (store, remote):
        first, second = await joined(remote), await joined(remote)
        waiting = waiting_for(remote, second)
        await watchers_at(store, 1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await watchers_at(store, 0)
        assert (await remote.range(second.key)).count == 1
        await contention.leave(remote, first)


async def test_a_wait_outlives_its_connection() -> None:
    async with served() as (store, remote):
        first, second = await joined(remote), await joined(remote)
        waiting = waiting_for(remote, second)
        await watchers_at(store, 1)
        remote.hang_up("for the test")
        await remote.range(first.key)  # on the next connection
        assert not waiting.done()
        released_at = await contention.leave(store, first)
        assert await waiting == released_at


async def test_a_wait_that_is_abandoned_leaves_nothing_on_the_server() -> None:
    async with served() as (store, remote):
        _, second = await joined(remote), await joined(remote)
        completion = FutureCompletion(asyncio.get_running_loop())
        remote.read(WaitFirst(second.name, second.key, second.token), completion)
        await watchers_at(store, 1)
        completion.abandon()
        with pytest.raises(Unavailable, match="gave it up"):
            await completion.future
        await watchers_at(store, 0)


async def test_a_queue_is_known_again_to_those_that_come_after_it_was_left() -> None:
    async with open_embedded("memory:") as store:
        first, second = await joined(store), await joined(store)
        waiting = waiting_for(store, second)
        await watchers_at(store, 1)
        third = await joined(store)
        after = waiting_for(store, third)
        await watchers_at(store, 2)
        # Out of order, and the first comes again, behind the others.
        await store.revoke(second.lease)
        await contention.leave(store, first)
        assert await waiting is None
        assert await after is not None
        fourth = await contention.join(store, NAME, first.lease)
        last = waiting_for(store, fourth)
        await watchers_at(store, 1)
        await contention.leave(store, third)
        assert await last is not None


async def test_a_wait_for_which_there_is_no_room_is_a_watch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(submission, "WAITS_MAX", 1)
    async with served() as (store, remote):
        first, second, third = [await joined(remote) for _ in range(3)]
        waiting = [
            asyncio.create_task(contention.wait_first(remote, place)) for place in (second, third)
        ]
        await watchers_at(store, 2)
        channel = remote._requests.endpoints.current
        assert channel is not None
        assert channel.waits_count == 1
        await contention.leave(remote, first)
        await waiting[0]
        await contention.leave(remote, second)
        await waiting[1]
        assert await remote.wait_first(third.name, third.key, third.token) is not None


async def test_on_an_etcd_the_client_watches_instead(tmp_path: Path) -> None:
    program = etcd_35_program()
    if program is None:
        pytest.skip("etcd 3.5 is not installed")
    with running_etcd(program, tmp_path) as port:
        async with open_remote(Target((Address("127.0.0.1", port),))) as remote:
            first, second = await joined(remote), await joined(remote)
            waiting = asyncio.create_task(contention.wait_first(remote, second))
            released_at = await contention.leave(remote, first)
            assert await waiting >= released_at
            # It is asked once: from then on it is known not to know the procedure.
            assert not remote.submission.knows_queues
            assert await contention.wait_first(remote, second) >= released_at


async def test_a_server_that_stops_does_not_wait_for_the_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "DRAIN_S", 3600.0)
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        target = Target((Address("127.0.0.1", listener.getsockname()[1]),))
        identity = Identity(cluster_id=1, member_id=2)
        async with open_embedded("memory:") as store, open_remote(target) as remote:
            async with serve_etcd(store, listener, host="127.0.0.1", identity=identity):
                _, second = await joined(remote), await joined(remote)
                waiting = waiting_for(remote, second)
                await watchers_at(store, 1)
            assert store.statistics().watchers_count == 0
            assert not waiting.done()  # it goes on when there is a server again
            waiting.cancel()
