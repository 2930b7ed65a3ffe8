"""Streams of events: bounded, in order, and honest about what they could not keep."""

from __future__ import annotations

import asyncio
import gc

import pytest

from quoracy.errors import InvalidRequest
from quoracy.membership.model import Conflict, Member, MemberChangeKind, MemberState
from quoracy.membership.runtime.events import (
    Changed,
    ClusterEvent,
    EventStream,
    Feed,
    Health,
    HealthChange,
    MessageStream,
    Received,
    Snapshot,
)
from quoracy.membership.runtime.member_view import MemberView


def view(name: str, state: MemberState = MemberState.ALIVE) -> MemberView:
    return MemberView.of(Member(name, f"{name}:7946", 1, state))


def joined(name: str) -> Changed:
    return Changed(MemberChangeKind.JOINED, view(name))


def died(name: str) -> Changed:
    return Changed(MemberChangeKind.DIED, view(name, MemberState.DEAD))


class Room:
    """Some members, a feed of their changes, and streams of it."""

    def __init__(self) -> None:
        self.present: dict[str, MemberView] = {}
        self.feed: Feed[ClusterEvent] = Feed()

    def members(self) -> tuple[MemberView, ...]:
        return tuple(self.present[name] for name in sorted(self.present))

    def listen(self, *, current_first: bool = False, buffer_max: int = 4) -> EventStream:
        stream = EventStream(self.members, current_first=current_first, buffer_max=buffer_max)
        self.feed.add(stream)
        return stream

    def tell(self, event: Changed | Conflict) -> None:
        if isinstance(event, Changed):
            self.present.pop(event.member.name, None)
            if event.member.is_present:
                self.present[event.member.name] = event.member
        self.feed.put(event)


async def test_a_stream_hears_everything_since_it_was_made() -> None:
    room = Room()
    room.tell(joined("before"))
    stream = room.listen()
    room.tell(joined("a"))
    room.tell(died("a"))
    assert [await anext(stream), await anext(stream)] == [joined("a"), died("a")]


async def test_whoever_comes_late_may_ask_for_the_members_first() -> None:
    room = Room()
    room.tell(joined("b"))
    room.tell(joined("a"))
    stream = room.listen(current_first=True)
    room.tell(died("b"))
    assert await anext(stream) == Snapshot((view("a"), view("b")), missed=0)
    assert await anext(stream) == died("b")


async def test_a_full_buffer_becomes_one_snapshot_that_counts_what_was_missed() -> None:
    room = Room()
    stream = room.listen(buffer_max=3)
    for number in range(5):
        room.tell(joined(f"m{number}"))
    room.tell(died("m0"))
    present = tuple(view(f"m{number}") for number in (1, 2, 3, 4))
    assert await anext(stream) == Snapshot(present, missed=6)
    room.tell(died("m1"))
    assert await anext(stream) == died("m1")


async def test_a_conflict_that_did_not_fit_is_counted_too() -> None:
    room = Room()
    stream = room.listen(buffer_max=1)
    room.tell(joined("a"))
    room.tell(Conflict(Member("a", "a:1", 1), "b:1"))
    assert await anext(stream) == Snapshot((view("a"),), missed=2)


async def test_applying_events_and_snapshots_always_ends_with_who_is_there() -> None:
    room = Room()
    stream = room.listen(current_first=True, buffer_max=2)
    known: set[str] = set()
    for number in range(200):
        name = f"m{number % 7}"
        room.tell(died(name) if name in room.present else joined(name))
        if number % 5 == 4:  # too rarely for the buffer, so that both ways are taken
            known = await _apply(stream, known)
    room.feed.end()
    async for event in stream:
        known = _applied(event, known)
    assert known == set(room.present)


async def _apply(stream: EventStream, known: set[str]) -> set[str]:
    return _applied(await anext(stream), known)


def _applied(event: ClusterEvent, known: set[str]) -> set[str]:
    match event:
        case Snapshot(members):
            return {member.name for member in members}
        case Changed(_, member) if member.is_present:
            return known | {member.name}
        case Changed(_, member):
            return known - {member.name}
    return known


async def test_a_slow_reader_costs_the_others_nothing() -> None:
    room = Room()
    slow, quick = room.listen(buffer_max=1), room.listen(buffer_max=100)
    for number in range(50):
        room.tell(joined(f"m{number}"))
    heard = [await anext(quick) for _ in range(50)]
    assert heard == [joined(f"m{number}") for number in range(50)]
    assert isinstance(await anext(slow), Snapshot)


async def test_what_waits_can_be_read_after_the_end_and_then_it_ends() -> None:
    room = Room()
    stream = room.listen()
    room.tell(joined("a"))
    room.feed.end()
    room.tell(joined("b"))
    assert [event async for event in stream] == [joined("a")]
    assert [event async for event in room.listen()] == []


async def test_a_reader_that_waits_is_woken_by_an_event_and_by_the_end() -> None:
    room = Room()
    stream = room.listen()
    waiting = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    room.tell(joined("a"))
    assert await waiting == joined("a")
    waiting = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    room.feed.end()
    with pytest.raises(StopAsyncIteration):
        await waiting


async def test_cancelling_a_read_loses_nothing() -> None:
    room = Room()
    stream = room.listen()
    for number in range(20):
        reading = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        room.tell(joined(f"m{number}"))
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert await anext(stream) == joined(f"m{number}")


async def test_a_closed_stream_has_nothing_more_to_say() -> None:
    room = Room()
    async with room.listen(buffer_max=1) as stream:
        room.tell(joined("a"))
        room.tell(joined("b"))
    assert [event async for event in stream] == []


async def test_streams_that_nobody_holds_are_not_fed() -> None:
    room = Room()
    room.listen()
    gc.collect()
    assert len(room.feed) == 0
    kept = room.listen()
    assert len(room.feed) == 1
    await kept.aclose()


async def test_a_buffer_without_room_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="room for at least one event, not for 0"):
        Room().listen(buffer_max=0)


async def test_the_message_after_a_gap_says_how_many_went_missing() -> None:
    stream = MessageStream(buffer_max=2)
    for number in range(5):
        stream.put(Received("a", b"%d" % number, is_broadcast=False))
    first, second = await anext(stream), await anext(stream)
    assert (first.payload, first.missed_before) == (b"3", 3)
    assert (second.payload, second.missed_before) == (b"4", 0)


async def test_health_begins_with_the_living_and_tells_who_comes_and_goes() -> None:
    room = Room()
    room.tell(joined("a"))
    health = Health({}, lambda: room.listen(current_first=True))
    changes = health.changes()
    assert await anext(changes) == HealthChange("a", is_alive=True)
    room.tell(joined("b"))
    assert await anext(changes) == HealthChange("b", is_alive=True)
    room.tell(Changed(MemberChangeKind.SUSPECTED, view("a", MemberState.SUSPECT)))
    room.tell(died("a"))
    assert await anext(changes) == HealthChange("a", is_alive=False)
    await changes.aclose()


async def test_health_is_right_after_a_gap() -> None:
    room = Room()
    health = Health({}, lambda: room.listen(current_first=True, buffer_max=2))
    room.tell(joined("a"))
    room.tell(joined("b"))
    changes = health.changes()
    assert {(await anext(changes)).name for _ in "ab"} == {"a", "b"}
    for event in (died("a"), joined("c"), joined("d"), died("d"), joined("e")):
        room.tell(event)
    assert [await anext(changes) for _ in "ace"] == [
        HealthChange("a", is_alive=False),
        HealthChange("c", is_alive=True),
        HealthChange("e", is_alive=True),
    ]
    await changes.aclose()


def test_a_suspect_counts_as_alive_and_a_dead_one_does_not() -> None:
    members = {
        state.name: Member(state.name, "x:1", 1, state)
        for state in (MemberState.ALIVE, MemberState.SUSPECT, MemberState.DEAD, MemberState.LEFT)
    }
    health = Health(members, lambda: EventStream(tuple))
    assert [name for name in (*members, "nobody") if health.is_alive(name)] == ["ALIVE", "SUSPECT"]
