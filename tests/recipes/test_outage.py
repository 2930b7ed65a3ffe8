"""What goes on by itself after a server was away for longer than a session lives, and tells."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path

import msgspec
import pytest

import quoracy
from tests.faults.scale import LONG
from tests.support.asking import until
from tests.support.places import Place, open_place
from tests.support.tcp_proxy import TcpProxy, tcp_proxy


class Settings(msgspec.Struct, frozen=True):
    workers: int = 4


async def take_away(proxy: TcpProxy, *, refusing: bool) -> None:
    if refusing:
        await proxy.refuse()
    else:
        proxy.hold_all()


async def bring_back(proxy: TcpProxy, *, refusing: bool) -> None:
    if refusing:
        await proxy.listen()
    else:
        proxy.pass_all()


@pytest.mark.faults
@pytest.mark.parametrize(
    ("kind", "refusing"),
    [("server", True), *([("server", False), ("etcd", True), ("etcd", False)] if LONG else [])],
)
async def test_everything_goes_on_after_an_outage_and_tells(
    kind: str, refusing: bool, tmp_path: Path
) -> None:
    async with open_place(kind, tmp_path) as place:
        assert isinstance(place.target, str)
        scheme, port = place.target.partition(":")[0], place.target.rpartition(":")[2]
        async with tcp_proxy(int(port)) as proxy:
            async with (
                quoracy.connect(
                    f"{scheme}://127.0.0.1:{proxy.port}",
                    namespace=place.namespace,
                    session_ttl=2,
                    request_timeout=1,
                    close_timeout=2,
                    identity="cut off",
                ) as q,
                place.connect() as other,
            ):
                await outage(place, q, other, proxy, refusing=refusing)


async def outage(
    place: Place, q: quoracy.Connection, other: quoracy.Connection, proxy: TcpProxy, *, refusing: bool
) -> None:
    tokens: list[int] = []
    comings: list[tuple[int, int]] = []

    async def work(term: quoracy.Term) -> None:
        tokens.append(term.token)
        await asyncio.sleep(1000)

    async def watch() -> None:
        async with aclosing(other.group("w").watch()) as changes:
            async for change in changes:
                comings.append((len(change.joined), len(change.left)))

    async with (
        q.cache("services", str, stale_after=1) as cache,
        q.config("app", Settings, stale_after=1) as config,
        q.group("w").join({"zone": "a"}, rejoin=True) as membership,
    ):
        tasks = [asyncio.create_task(q.singleton("s").run(work)), asyncio.create_task(watch())]
        await until(lambda: len(tokens) == len(comings) == 1)
        events = membership.events()
        await take_away(proxy, refusing=refusing)
        async with asyncio.timeout(20):
            lost = await anext(events)
        assert lost.kind is quoracy.MembershipEventKind.LOST
        assert (membership.is_held, membership.lost.is_set()) == (False, True)
        await until(lambda: comings == [(1, 0), (0, 1)])
        await until(lambda: cache.is_stale and config.is_stale)

        await other.store.put(place.key("services/web"), b"up")
        revision = await other.config("app", Settings).set(workers=5)
        assert (cache.get("web"), config.value) == (None, Settings(4))
        await bring_back(proxy, refusing=refusing)
        async with asyncio.timeout(20):
            again = await anext(events)
        assert again.kind is quoracy.MembershipEventKind.REJOINED
        await until(lambda: len(tokens) == 2 and tokens[1] > tokens[0])
        await cache.wait_revision(revision, timeout=20)
        await config.wait_revision(revision, timeout=20)
        assert (cache["web"], config.value) == ("up", Settings(5))
        await until(lambda: membership.is_held and not cache.is_stale and not config.is_stale)
        await until(lambda: comings == [(1, 0), (0, 1), (1, 0)])
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
