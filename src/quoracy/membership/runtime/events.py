"""Event streams of a cluster: bounded buffers that never lose anything silently.

Every reader has a buffer of its own, so a slow one delays no other and costs a bounded amount of
memory.  When a buffer is full:

    * `EventStream`: the waiting events are replaced by one `Snapshot`, which says how many were missed
      and who is a member at the moment it is read.  A reader that applies changes to a list of its own
      is correct again after it.
    * `StateStream`: the waiting changes are replaced by one `StateMissed`.
    * `MessageStream`: the oldest message is dropped; the next one that is read says how many were.

Invariants
    * A stream receives everything from the moment it is made, not from its first read.
    * Cancelling a read loses nothing.
    * Streams that are no longer referenced receive nothing.
"""

from __future__ import annotations

import abc
import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from types import TracebackType
from typing import Generic, Self, TypeAlias, TypeVar, assert_never
from weakref import WeakSet

import msgspec

from quoracy.errors import InvalidRequest
from quoracy.membership.gossip import Gossip, StateChanged
from quoracy.membership.machine import Effect
from quoracy.membership.model import Conflict, Member, MemberChangeKind
from quoracy.membership.runtime.member_view import MemberView

__all__ = [
    "BUFFER_EVENTS_MAX", "Changed", "ClusterEvent", "ClusterState", "EventStream", "Feed", "Health",
    "HealthChange", "MessageStream", "Received", "Snapshot", "StateEvent", "StateMissed", "StateStream",
    "Stream",
]  # fmt: skip

BUFFER_EVENTS_MAX = 1_024

T = TypeVar("T")


class Changed(msgspec.Struct, frozen=True):
    """Something changed about another member; `member` is how it is now.

    by: the member whose message caused the change, where that is known: an accuser, or itself.
    """

    kind: MemberChangeKind
    member: MemberView
    by: str | None = None


class Snapshot(msgspec.Struct, frozen=True):
    """All members that are present now, sorted by name; it replaces what was known before.

    missed: how many events were not delivered because this reader was too slow; 0 for the one of
    `current_first`.
    """

    members: tuple[MemberView, ...]
    missed: int = 0


class Received(msgspec.Struct, frozen=True):
    """A message from another member, to us alone or (`is_broadcast`) to everyone.

    missed_before: how many messages between the previous one and this were dropped because this reader
    was too slow.
    """

    sender: str
    payload: bytes
    is_broadcast: bool
    missed_before: int = 0


ClusterEvent: TypeAlias = Changed | Snapshot | Conflict


class Stream(abc.ABC, Generic[T]):
    """An iterator over the items that are put into it; it ends, after those that wait, with `end`."""

    def __init__(self, *, buffer_max: int) -> None:
        if buffer_max < 1:
            raise InvalidRequest(f"a buffer has room for at least one event, not for {buffer_max}.")
        self._waiting: deque[T] = deque()
        self._buffer_max = buffer_max
        self._missed = 0
        self._has_ended = False
        self._changed = asyncio.Event()

    def put(self, item: T) -> None:
        """Add an item; never waits.  The top of this module says what happens to a full buffer."""
        if self._has_ended:
            return
        if len(self._waiting) < self._buffer_max:
            self._waiting.append(item)
        else:
            self._overflow(item)
        self._changed.set()

    def end(self) -> None:
        """End the stream; the items that wait can still be read."""
        self._has_ended = True
        self._changed.set()

    async def aclose(self) -> None:
        """End the stream and drop the items that wait."""
        self._waiting.clear()
        self._missed = 0
        self.end()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        while (item := self._take()) is None:
            if self._has_ended:
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        return item

    def _take(self) -> T | None:
        return self._waiting.popleft() if self._waiting else None

    @abc.abstractmethod
    def _overflow(self, item: T) -> None:
        """There is no room for `item`."""


class SummingStream(Stream[T]):
    """A stream in which one item stands for all that was missed when its buffer was full."""

    def put(self, item: T) -> None:
        if self._missed and not self._has_ended:
            self._missed += 1  # the summary that is due will say so
        else:
            super().put(item)

    def _overflow(self, item: T) -> None:
        del item
        self._missed += len(self._waiting) + 1
        self._waiting.clear()

    def _take(self) -> T | None:
        if self._missed:
            missed, self._missed = self._missed, 0
            return self._summary(missed)
        return super()._take()

    @abc.abstractmethod
    def _summary(self, missed: int) -> T:
        """The item that is read in the place of those that were missed."""


class EventStream(SummingStream[ClusterEvent]):
    """The changes of a cluster, in the order in which they became known here.

    Use it with `async for`; leave the loop, or the `async with` around it, to stop listening.
    """

    def __init__(
        self,
        members: Callable[[], tuple[MemberView, ...]],
        *,
        current_first: bool = False,
        buffer_max: int = BUFFER_EVENTS_MAX,
    ) -> None:
        super().__init__(buffer_max=buffer_max)
        self._members = members
        if current_first:
            self._waiting.append(Snapshot(members()))

    def _summary(self, missed: int) -> ClusterEvent:
        return Snapshot(self._members(), missed)


class MessageStream(Stream[Received]):
    """What other members sent, in the order in which it arrived."""

    def __init__(self, *, buffer_max: int = BUFFER_EVENTS_MAX) -> None:
        super().__init__(buffer_max=buffer_max)

    def _overflow(self, item: Received) -> None:
        self._waiting.popleft()
        self._missed += 1
        self._waiting.append(item)

    def _take(self) -> Received | None:
        message = super()._take()
        if message is None or not self._missed:
            return message
        missed, self._missed = self._missed, 0
        return msgspec.structs.replace(message, missed_before=missed)


class Feed(Generic[T]):
    """The streams of one kind of item."""

    def __init__(self) -> None:
        self._streams: WeakSet[Stream[T]] = WeakSet()
        self._has_ended = False

    def __len__(self) -> int:
        return len(self._streams)

    def add(self, stream: Stream[T]) -> None:
        if self._has_ended:
            stream.end()
        self._streams.add(stream)

    def put(self, item: T) -> None:
        for stream in self._streams:
            stream.put(item)

    def end(self) -> None:
        self._has_ended = True
        for stream in self._streams:
            stream.end()


class StateMissed(msgspec.Struct, frozen=True):
    """`count` changes were not delivered because this reader was too slow: read the state again."""

    count: int


StateEvent: TypeAlias = StateChanged | StateMissed


class StateStream(SummingStream[StateEvent]):
    """The changes of others' keys, in the order in which they became known here."""

    def _summary(self, missed: int) -> StateEvent:
        return StateMissed(missed)


class ClusterState:
    """Keys and values of all members, spread by gossip: `cluster.state`.

    For what does not fit into 512 bytes of metadata, or changes often.  Only a member writes its own
    keys; `quoracy.membership.gossip` describes how they spread, and what is promised.
    """

    def __init__(self, gossip: Gossip, call: Callable[[Callable[[float], list[Effect]]], None]) -> None:
        self._gossip, self._call = gossip, call
        self._feed: Feed[StateEvent] = Feed()

    async def set(self, key: str, value: bytes) -> None:
        """Write a key of ours.  It is known here at once, and to others after a while."""
        self._call(lambda now: self._gossip.set(key, value, now))

    async def delete(self, key: str) -> None:
        """Delete a key of ours, if it is there."""
        self._call(lambda now: self._gossip.delete(key, now))

    def get(self, member: str, key: str) -> bytes | None:
        """The value of a member's key as it is known here; None if there is none."""
        return self._gossip.get(member, key)

    def of(self, member: str) -> Mapping[str, bytes]:
        """All keys and values of a member as they are known here."""
        return self._gossip.of(member)

    def changes(self, *, buffer_max: int = BUFFER_EVENTS_MAX) -> StateStream:
        """All changes of other members' keys from now on."""
        stream = StateStream(buffer_max=buffer_max)
        self._feed.add(stream)
        return stream

    # -- for the runtime

    def told(self, event: object) -> None:
        assert isinstance(event, StateChanged)
        self._feed.put(event)

    def end(self) -> None:
        self._feed.end()


class HealthChange(msgspec.Struct, frozen=True):
    """A member is alive (again), or is gone: dead, left, or forgotten."""

    name: str
    is_alive: bool


class Health:
    """Which members are alive, by name, for a registry of services; it can only read.

    A suspect counts as alive: it may still refute the suspicion, and removing a service at each missing
    answer would make every lost packet an outage.

    >>> from quoracy.membership.model import Member
    >>> health = Health({"a": Member("a", "10.0.0.1:7946", 1)}, lambda: EventStream(lambda: ()))
    >>> health.is_alive("a"), health.is_alive("b")
    (True, False)
    """

    def __init__(self, members: Mapping[str, Member], listen: Callable[[], EventStream]) -> None:
        self._members, self._listen = members, listen

    def is_alive(self, name: str) -> bool:
        """Whether the member of this name is present; False for an unknown name."""
        member = self._members.get(name)
        return member is not None and member.is_present

    async def changes(self) -> AsyncGenerator[HealthChange]:
        """All members that are alive first, then every change.  Ends when the cluster is left.

        A slow reader misses no change for good, but may not see that a member went and came back.
        """
        alive: set[str] = set()
        async with aclosing(self._listen()) as events:
            async for event in events:
                match event:
                    case Snapshot(members):
                        present = {member.name for member in members}
                    case Changed(_, member):
                        present = alive | {member.name}
                        if not member.is_present:
                            present = alive - {member.name}
                    case Conflict():
                        continue
                    case _:
                        assert_never(event)
                for name in sorted(alive ^ present):
                    yield HealthChange(name, name in present)
                alive = present
