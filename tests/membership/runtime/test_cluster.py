"""A cluster for programs: real sockets on loopback, real time, quick settings."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable
from typing import TypeVar

import pytest

from quoracy import membership
from quoracy.errors import InvalidRequest, Unavailable
from quoracy.membership import Changed, Cluster, HealthChange, MemberChangeKind, MemberState, Snapshot
from quoracy.membership.runtime.keyring import generate_key
from quoracy.membership.settings import SwimSettings

T = TypeVar("T")

QUICK = SwimSettings(
    probe_interval_s=0.1,
    probe_timeout_s=0.04,
    gossip_interval_s=0.02,
    sync_interval_s=1.0,
    reconnect_interval_s=0.2,
    reclaim_s=0.3,
)
ANY = "127.0.0.1:0"
JOINED, DIED, LEFT = MemberChangeKind.JOINED, MemberChangeKind.DIED, MemberChangeKind.LEFT
_SOON_S = 20.0


def join(
    name: str, *others: Cluster, **options: object
) -> contextlib.AbstractAsyncContextManager[Cluster]:
    given = {"settings": QUICK, "seeds": [each.me.address for each in others], **options}
    return membership.join(ANY, name=name, **given)  # type: ignore[arg-type]


@contextlib.asynccontextmanager
async def cluster_of(names: str, **options: object) -> AsyncIterator[list[Cluster]]:
    async with contextlib.AsyncExitStack() as stack:
        members: list[Cluster] = []
        for name in names:
            members.append(await stack.enter_async_context(join(name, *members[:1], **options)))
        for each in members:
            await until_sees(each, names)
        yield members


async def soon(awaitable: Awaitable[T]) -> T:
    async with asyncio.timeout(_SOON_S):
        return await awaitable


def names_of(cluster: Cluster) -> str:
    return "".join(member.name for member in cluster.members)


async def until_sees(cluster: Cluster, names: str) -> None:
    async with asyncio.timeout(_SOON_S), cluster.events(current_first=True) as events:
        async for _ in events:
            if names_of(cluster) == "".join(sorted(names)):
                return


# -- who is there ------------------------------------------------------------------------------------


async def test_members_see_each_other_and_what_they_say_of_themselves() -> None:
    async with join("a", meta={"zone": "x"}) as a, join("b", a, meta=b"\x00raw") as b:
        assert names_of(b) == "ab"  # known as soon as the block is entered
        await until_sees(a, "ab")
        seen_by_b, seen_by_a = b.member("a"), a.member("b")
        assert seen_by_b is not None
        assert seen_by_a is not None
        assert seen_by_b.meta == {"zone": "x"}
        assert (seen_by_a.meta, seen_by_a.meta_bytes) == ({}, b"\x00raw")
        assert (a.me.name, a.me.state) == ("a", MemberState.ALIVE)
        assert a.member("nobody") is None


async def test_leaving_the_block_is_a_goodbye_and_not_a_death() -> None:
    async with join("a") as a:
        events = a.events(current_first=True)
        assert await anext(events) == Snapshot((a.me,))
        async with join("b", a):
            pass
        seen = [await soon(anext(events)), await soon(anext(events))]
        assert [(each.kind, each.member.name) for each in seen if isinstance(each, Changed)] == [
            (JOINED, "b"),
            (LEFT, "b"),
        ]
        assert names_of(a) == "a"
        assert [(view.name, view.state) for view in a.known] == [
            ("a", MemberState.ALIVE),
            ("b", MemberState.LEFT),
        ]


async def test_one_that_ends_without_a_word_is_found_dead_by_all() -> None:
    async with cluster_of("abcd") as (a, b, c, d):
        streams = [each.events() for each in (a, b, c)]
        await d.close()
        for stream in streams:
            kinds = []
            while DIED not in kinds:
                event = await soon(anext(stream))
                assert isinstance(event, Changed)
                assert event.member.name == "d"
                kinds.append(event.kind)
        assert [names_of(each) for each in (a, b, c)] == ["abc"] * 3


async def test_new_metadata_reaches_the_others_as_an_update() -> None:
    async with cluster_of("ab") as (a, b):
        events = a.events()
        await b.update_meta({"zone": "new"})
        event = await soon(anext(events))
        assert isinstance(event, Changed)
        assert (event.kind, event.member.meta) == (MemberChangeKind.UPDATED, {"zone": "new"})
        assert b.me.meta == {"zone": "new"}
        with pytest.raises(InvalidRequest, match="takes 609 bytes; the limit is 512"):
            await b.update_meta({"zone": "x" * 600})
        assert b.me.meta == {"zone": "new"}


async def test_health_tells_a_registry_who_is_alive() -> None:
    async with cluster_of("ab") as (a, b):
        changes = a.health.changes()
        first = {await soon(anext(changes)), await soon(anext(changes))}
        assert first == {HealthChange("a", is_alive=True), HealthChange("b", is_alive=True)}
        assert a.health.is_alive("b")
        await b.leave()
        assert await soon(anext(changes)) == HealthChange("b", is_alive=False)
        assert not a.health.is_alive("b")
        await changes.aclose()


async def test_silence_and_round_trips_are_measured() -> None:
    async with cluster_of("ab") as (a, b):
        async with asyncio.timeout(_SOON_S):
            # Nothing is told when a probe succeeds.
            while a.rtt_s("b") is None or a.phi("b") is None:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert 0 < (a.rtt_s("b") or 0) < 1
        assert (a.phi("b") or 0) >= 0
        assert a.phi("a") is None
        assert b.statistics().traffic.packets_in > 0


# -- talking -----------------------------------------------------------------------------------------


async def test_messages_of_any_size_reach_the_one_they_are_for() -> None:
    async with cluster_of("abc") as (a, b, c):
        at_b, at_c = b.messages(), c.messages()
        await a.send("b", b"small")
        await a.send("b", b"x" * 200_000)
        sizes = sorted([len((await soon(anext(at_b))).payload) for _ in range(2)])
        assert sizes == [5, 200_000]
        await a.send("c", b"last")
        only = await soon(anext(at_c))
        assert (only.sender, only.payload, only.is_broadcast) == ("a", b"last", False)


async def test_a_broadcast_reaches_everyone_else_once() -> None:
    async with cluster_of("abcd") as (a, b, c, d):
        streams = [each.messages() for each in (a, b, c, d)]
        await b.broadcast(b"hear")
        await b.broadcast(b"hear again")
        for stream in (streams[0], streams[2], streams[3]):
            got = {(await soon(anext(stream))).payload for _ in range(2)}
            assert got == {b"hear", b"hear again"}
        await a.send("b", b"only this")
        assert (await soon(anext(streams[1]))).payload == b"only this"


async def test_what_cannot_be_sent_is_refused_at_once() -> None:
    async with join("a") as a:
        with pytest.raises(InvalidRequest, match="no member 'nobody'"):
            await a.send("nobody", b"")
        with pytest.raises(InvalidRequest, match="must fit into one packet"):
            await a.broadcast(b"x" * 2_000)


async def test_state_of_a_member_is_known_to_the_others() -> None:
    async with cluster_of("abc") as (a, b, c):
        at_c = c.state.changes()
        await a.state.set("load", b"7")
        change = await soon(anext(at_c))
        assert isinstance(change, membership.StateChanged)
        assert (change.owner, change.key, change.value) == ("a", "load", b"7")
        assert c.state.get("a", "load") == b"7"
        assert a.state.of("a") == {"load": b"7"}
        await a.state.delete("load")
        change = await soon(anext(at_c))
        assert isinstance(change, membership.StateChanged)
        assert change.value is None
        assert c.state.of("a") == {}
        assert b.state.get("nobody", "x") is None


async def test_who_joins_later_learns_the_state_that_was_there() -> None:
    async with join("a") as a:
        await a.state.set("k", b"v" * 5_000)
        async with join("b", a) as b:
            changes = b.state.changes()
            if b.state.get("a", "k") is None:
                await soon(anext(changes))
            assert b.state.get("a", "k") == b"v" * 5_000


# -- leaving -----------------------------------------------------------------------------------------


async def test_after_leaving_streams_end_and_nothing_more_can_be_asked_of_it() -> None:
    async with cluster_of("ab") as (a, b):
        events, messages, state = b.events(), b.messages(), b.state.changes()
        await b.leave()
        await b.leave()
        await b.close()
        assert b.has_left
        async with asyncio.timeout(_SOON_S):
            for stream in (events, messages, state):
                assert [each async for each in stream if not isinstance(each, Changed)] == []
        for call in (b.broadcast(b""), b.send("a", b""), b.update_meta({}), b.state.set("k", b"")):
            with pytest.raises(Unavailable, match=r"b has left its cluster\. Join again"):
                await call
        assert b.me.state is MemberState.LEFT
        await until_sees(a, "a")


async def test_leaving_takes_no_longer_than_saying_goodbye() -> None:
    async with cluster_of("abc") as (a, b, _):
        await soon(b.leave(timeout=600.0))
        await until_sees(a, "ac")


async def test_leaving_without_anybody_to_tell_takes_no_longer_than_allowed() -> None:
    async with join("a", settings=membership.SwimSettings(gossip_interval_s=600.0)) as a:
        async with join("b", a, settings=membership.SwimSettings(gossip_interval_s=600.0)) as b:
            await soon(b.leave(timeout=0.05))
            assert b.has_left
            await a.close()


async def test_a_member_that_comes_back_is_a_member_again() -> None:
    async with join("a") as a:
        for _ in range(3):
            async with join("b", a):
                await until_sees(a, "ab")
            await until_sees(a, "a")


async def test_one_that_died_and_came_back_at_the_same_address_is_a_member_again() -> None:
    async with cluster_of("abc") as (a, b, c):
        address = c.me.address
        await c.close()
        await until_sees(a, "ab")
        again = membership.join(address, [a.me.address], name="c", settings=QUICK)
        async with again as c2:
            for each in (a, b, c2):
                await until_sees(each, "abc")


async def test_an_error_in_the_block_is_raised_after_a_goodbye() -> None:
    async with join("a") as a:
        events = a.events()
        with pytest.raises(ZeroDivisionError):
            async with join("b", a):
                raise ZeroDivisionError
        kinds = [(await soon(anext(events))) for _ in range(2)]
        assert [each.kind for each in kinds if isinstance(each, Changed)] == [JOINED, LEFT]


async def test_a_fault_in_a_machine_ends_the_streams_and_is_raised_by_the_block() -> None:
    with pytest.raises(ZeroDivisionError):
        async with join("a") as a:
            events = a.events()

            def divide(sender: str, now: float) -> None:
                raise ZeroDivisionError

            a._swim.on_packet = divide
            async with join("b", a, settings=QUICK, leave_timeout=0.1):
                async with asyncio.timeout(_SOON_S):
                    while await anext(events, None) is not None:
                        pass
    assert a.has_left


# -- keys --------------------------------------------------------------------------------------------


async def test_with_a_key_only_those_who_have_it_are_members() -> None:
    key = generate_key()
    async with join("a", key=key) as a, join("b", a, key=key) as b:
        await until_sees(a, "ab")
        for options in ({}, {"key": generate_key()}, {"key": key, "label": "other"}):
            with pytest.raises(Unavailable, match="with the same key and the same label"):
                async with join("x", a, join_timeout=2.0, **options):
                    pass
        assert names_of(a) == names_of(b) == "ab"
        assert sum(a.statistics().traffic.dropped.values()) >= 3


async def test_a_key_and_a_keyring_are_too_much() -> None:
    key = generate_key()
    with pytest.raises(InvalidRequest, match="a key or a keyring, not both"):
        async with join("a", key=key, keyring=membership.KeyRing(key)):
            pass
