"""Group: what it promises, on every kind of store."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, aclosing

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import quoracy
from quoracy.client.recipes.group import Group, GroupChange, Membership, MembershipEventKind
from quoracy.clock import ManualClock
from tests.support.asking import eventually, turns
from tests.support.cancelling import cancelled_everywhere
from tests.support.places import Place
from tests.support.profiles import examples

Labels = dict[str, str]


class Worker(msgspec.Struct, frozen=True):
    zone: str
    slots: int = 1


def names(change: GroupChange[Labels]) -> tuple[list[str], list[str], list[str], list[str]]:
    """Who is there, joined, left, updated."""
    here, joined, left, updated = (
        [member.identity for member in members]
        for members in (change.members, change.joined, change.left, change.updated)
    )
    return here, joined, left, updated


async def nothing_left(place: Place) -> bool:
    return not (await place.store.range(place.corner, keys_only=True)).kvs


async def test_members_are_typed_and_in_order_of_joining(place: Place) -> None:
    async with (
        place.connect(identity="zoe") as zoe,
        place.connect(identity="ann") as ann,
        Group(zoe, "w", Worker).join(Worker("a", 3)) as first,
        Group(ann, "w", Worker).join(Worker("b")) as second,
        Group(ann, "w", Worker).join(Worker("b"), identity="ann's other") as third,
    ):
        members = await Group(ann, "w", Worker).members()
        assert [(member.identity, member.metadata) for member in members] == [
            ("zoe", Worker("a", 3)),
            ("ann", Worker("b")),
            ("ann's other", Worker("b")),
        ]
        assert [member.since for member in members] == [first.token, second.token, third.token]
        assert members[0].lease == (await zoe.session()).id
        await first.update(Worker("c"))
        (now, *_) = await Group(ann, "w", Worker).members()
        assert (now.metadata, now.since) == (first.metadata, first.token) == (Worker("c"), now.since)
        assert now.revision > now.since
    assert await nothing_left(place)


async def test_watch_tells_everyone_and_then_every_change_once(place: Place) -> None:
    async with place.connect(identity="zoe") as zoe, place.connect(identity="ann") as ann:
        group = Group(zoe, "w", Labels)
        async with aclosing(group.watch()) as changes:
            assert names(await anext(changes)) == ([], [], [], [])
            async with group.join({"zone": "a"}) as membership:
                change = await anext(changes)
                assert names(change) == (["zoe"], ["zoe"], [], [])
                assert change.revision == membership.token
                await membership.update({"zone": "b"})
                change = await anext(changes)
                assert names(change) == (["zoe"], [], [], ["zoe"])
                assert change.updated[0].metadata == {"zone": "b"}
                async with aclosing(Group(ann, "w", Labels).watch()) as later:
                    assert names(await anext(later)) == (["zoe"], ["zoe"], [], [])
                async with Group(ann, "w", Labels).join({}):
                    assert names(await anext(changes)) == (["zoe", "ann"], ["ann"], [], [])
                    await place.store.put(place.key("elsewhere"), b"")
                assert names(await anext(changes)) == (["zoe"], [], ["ann"], [])
            assert names(await anext(changes)) == ([], [], ["zoe"], [])


async def test_all_that_goes_with_a_session_is_one_change(place: Place, q: quoracy.Connection) -> None:
    async with aclosing(Group(q, "w", Labels).watch()) as changes:
        await anext(changes)
        async with place.connect(identity="ann") as ann:
            group = Group(ann, "w", Labels)
            await group.enroll({}, identity="a")
            await group.enroll({}, identity="b")
            await anext(changes)
            await anext(changes)
        assert names(await anext(changes)) == ([], [], ["a", "b"], [])


async def test_member_is_told_that_it_is_one_no_more(place: Place) -> None:
    async with place.connect(identity="ann") as q:
        group = Group(q, "w", Labels)
        with pytest.raises(quoracy.LeaseLost, match=r"membership in w as ann.* is lost.*join again"):
            async with group.join({}) as membership:
                await q.store.revoke((await q.session()).id)
                async with asyncio.timeout(20):
                    await membership.lost.wait()
                assert not membership.is_held
                with pytest.raises(quoracy.LeaseLost):
                    await membership.update({"zone": "x"})
                await asyncio.sleep(0)  # the body goes on
        with pytest.raises(quoracy.LeaseLost):
            async with group.join({}, cancel_on_loss=True):
                await q.store.revoke((await q.session()).id)
                await asyncio.sleep(60)
        assert await nothing_left(place)


async def test_rejoining_is_never_silent(place: Place) -> None:
    async with place.connect(identity="ann") as ann, place.connect() as other:
        async with aclosing(Group(other, "w", Labels).watch()) as changes:
            await anext(changes)
            async with Group(ann, "w", Labels).join({"zone": "a"}, rejoin=True) as membership:
                first = membership.token
                events = membership.events()
                await membership.update({"zone": "b"})
                assert len((await anext(changes)).joined) == len((await anext(changes)).updated) == 1
                for _ in range(2):
                    token = membership.token
                    async with asyncio.timeout(20):
                        await ann.store.revoke((await ann.session()).id)
                        assert names(await anext(changes)) == ([], [], ["ann"], [])
                        lost, again = await anext(events), await anext(events)
                    assert (lost.kind, lost.token) == (MembershipEventKind.LOST, token)
                    assert isinstance(lost.error, quoracy.LeaseLost)
                    assert (again.kind, again.error) == (MembershipEventKind.REJOINED, None)
                    change = await anext(changes)
                    assert names(change) == (["ann"], ["ann"], [], [])
                    assert change.joined[0].metadata == {"zone": "b"}
                    assert change.joined[0].since == again.token == membership.token > first
                    assert membership.is_held
                    assert not membership.lost.is_set()
                await membership.update({"zone": "c"})
                assert (await anext(changes)).updated[0].metadata == {"zone": "c"}
            assert [event async for event in events] == []
            assert names(await anext(changes)) == ([], [], ["ann"], [])
        assert await nothing_left(place)


async def test_whom_somebody_put_out_stays_out(place: Place, q: quoracy.Connection) -> None:
    group = Group(q, "w", Labels)
    with pytest.raises(quoracy.LeaseLost, match="was deleted"):
        async with group.join({}, rejoin=True) as membership:
            events = membership.events()
            await q.store.delete(membership.key)
            async with asyncio.timeout(20):
                assert [event.kind async for event in events] == [MembershipEventKind.LOST]
            assert membership.lost.is_set()
            assert await group.members() == ()
    assert q.state is quoracy.SessionState.CONNECTED


async def test_session_that_runs_out_is_lost_here_first(timed: Place, clock: ManualClock) -> None:
    async with timed.connect(session_ttl=6, identity="ann") as ann:
        group = Group(ann, "w", Labels)
        async with group.join({}, rejoin=True) as membership:
            token = membership.token
            clock.jump(5.8)
            assert (membership.is_held, membership.lost.is_set()) == (False, True)
            assert [member.since for member in await group.members()] == [token]  # the server waits
            await clock.advance(10)
            await eventually(lambda: is_joined(group, membership), clock)
            assert membership.token > token
            await clock.advance(1)
            assert (membership.is_held, membership.lost.is_set()) == (True, False)
            clock.jump(5.8)
            assert (membership.is_held, membership.lost.is_set()) == (False, True)
            await clock.advance(10)
            await eventually(lambda: is_joined(group, membership), clock)


async def is_joined(group: Group[Labels], membership: Membership[Labels]) -> bool:
    return [member.since for member in await group.members()] == [membership.token]


async def test_member_with_other_metadata_is_a_member_all_the_same(
    place: Place, q: quoracy.Connection
) -> None:
    await place.store.put(place.key("w/stranger"), b"?")
    async with Group(q, "w", Labels).join({"zone": "a"}, identity="ann"):
        stranger, ann = await Group(q, "w", Worker).members()
        assert (stranger.identity, ann.identity, ann.metadata) == ("", "ann", Worker("a"))
        for_labels = (await Group(q, "w", Labels).members())[1]
        assert for_labels.metadata == {"zone": "a"}
        with pytest.raises(quoracy.ValueUnreadable, match="w/stranger"):
            _ = stranger.metadata


async def test_what_is_not_of_the_type_is_not_said(timed: Place) -> None:
    async with timed.connect() as q:
        with pytest.raises(quoracy.InvalidRequest, match="no dict to say in w"):
            await Group(q, "w", Labels).enroll({"zone": 7})  # type: ignore[dict-item]
        with pytest.raises(quoracy.InvalidRequest, match="Choose one"):
            Group(q, "w", Labels).join({}, rejoin=True, cancel_on_loss=True)
        membership = await Group(q, "w", bytes).enroll(b"\xff")
        (member,) = await Group(q, "w", bytes).members()
        assert member.metadata == b"\xff"
        await membership.release()
        await membership.release()
        assert [event async for event in membership.events()] == []
        assert await nothing_left(timed)


async def test_cancelled_anywhere_nothing_is_left(timed: Place) -> None:
    async with timed.connect() as q:
        group = Group(q, "w", Labels)

        async def use() -> None:
            async with group.join({"zone": "a"}, rejoin=True) as membership:
                await membership.update({"zone": "b"})
                async with aclosing(group.watch()) as changes:
                    await anext(changes)

        async for attempt in cancelled_everywhere(use):
            assert not attempt.swallowed
            await eventually(lambda: nothing_left(timed))
            await turns()
            assert not q._tasks
            assert (await timed.store.status()).watchers_count == 0


async def test_closing_the_connection_is_no_reason_to_rejoin(timed: Place) -> None:
    async with timed.connect() as q:
        membership = await Group(q, "w", Labels).enroll({}, rejoin=True)
        events = membership.events()
    assert not q._tasks
    assert [event.kind async for event in events] == [MembershipEventKind.LOST]
    with pytest.raises(quoracy.LeaseLost, match="connection was closed"):
        membership.check()
    assert await nothing_left(timed)


async def test_release_while_rejoining_leaves_nothing(timed: Place) -> None:
    async with timed.connect() as q:
        for wait in range(12):
            membership = await Group(q, "w", Labels).enroll({}, rejoin=True)
            session = await q.session()
            await q.store.revoke(session.id)
            session.lease_not_found()
            assert membership.lost.is_set()
            await turns(wait)
            await membership.release()
            await eventually(lambda: nothing_left(timed))
            assert not membership.is_held


# -- any schedule ----------------------------------------------------------------------------------

STEPS = st.tuples(st.sampled_from(["join", "leave", "update", "crash", "compact"]), st.integers(0, 2))


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(STEPS, max_size=20))
def test_watch_shows_what_the_store_shows(schedule: list[tuple[str, int]]) -> None:
    """Three processes that come and go; the watcher's view is that of a plain model, step by step."""

    async def run() -> None:
        async with quoracy.open_store("memory:") as store, AsyncExitStack() as stack:
            connections = [
                await stack.enter_async_context(quoracy.connect(store, identity=str(at)))
                for at in range(3)
            ]
            groups = [Group(q, "w", Labels) for q in connections]
            here: dict[str, Membership[Labels]] = {}
            changes = await stack.enter_async_context(aclosing(groups[0].watch()))
            await anext(changes)
            for count, (kind, at) in enumerate(schedule):
                who, expected = str(at), ([str(at)] if str(at) in here else [])
                if kind == "join" and not expected:
                    here[who] = await groups[at].enroll({"step": str(count)})
                    expected = [who]
                elif kind == "leave" and expected:
                    await here.pop(who).release()
                elif kind == "update" and expected:
                    await here[who].update({"step": str(count)})
                elif kind == "crash" and expected:
                    session = await connections[at].session()
                    await store.revoke(session.id)
                    session.lease_not_found()
                    assert here.pop(who).lost.is_set()
                else:
                    continue
                change = await asyncio.wait_for(anext(changes), 5)
                told = {"join": change.joined, "update": change.updated}.get(kind, change.left)
                assert [member.identity for member in told] == expected
                assert len(change.joined) + len(change.left) + len(change.updated) == 1
                assert {member.identity: member.metadata for member in change.members} == {
                    name: membership.metadata for name, membership in here.items()
                }
                assert change.members == await groups[1].members()

    asyncio.run(run())
