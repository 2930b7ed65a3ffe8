"""What members say at greater length: keys and values of each, known to all after a while.

For what does not fit into 512 bytes of metadata, or changes often.  Only a member writes its own; how
it travels, and what is promised, is said in `quoracy.membership.gossip`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import msgspec

from quoracy.membership.gossip import Gossip, StateChanged
from quoracy.membership.machine import Effect
from quoracy.membership.runtime.events import BUFFER_EVENTS_MAX, Feed, Stream

__all__ = ["ClusterState", "StateEvent", "StateMissed", "StateStream"]


class StateMissed(msgspec.Struct, frozen=True):
    """So many changes were not delivered because this reader was too slow: read anew what you need."""

    count: int


StateEvent: TypeAlias = StateChanged | StateMissed


class StateStream(Stream[StateEvent]):
    """The changes of others' keys, in the order in which they became known here."""

    def _overflow(self, item: StateEvent) -> None:
        del item
        self._missed += len(self._waiting) + 1
        self._waiting.clear()

    def put(self, item: StateEvent) -> None:
        if self._missed and not self._has_ended:
            self._missed += 1
        else:
            super().put(item)

    def _take(self) -> StateEvent | None:
        if self._missed:
            missed, self._missed = self._missed, 0
            return StateMissed(missed)
        return super()._take()


class ClusterState:
    """The keys of all members.  `cluster.state` of a cluster is one."""

    def __init__(self, gossip: Gossip, call: Callable[[Callable[[float], list[Effect]]], None]) -> None:
        self._gossip, self._call = gossip, call
        self._feed: Feed[StateEvent] = Feed()

    async def set(self, key: str, value: bytes) -> None:
        """Write a key of ours.  Others know it after a while; here it is known at once."""
        self._call(lambda now: self._gossip.set(key, value, now))

    async def delete(self, key: str) -> None:
        """Delete a key of ours, if it is there."""
        self._call(lambda now: self._gossip.delete(key, now))

    def get(self, member: str, key: str) -> bytes | None:
        """What a member says under a key, as far as it is known here; None for nothing."""
        return self._gossip.get(member, key)

    def of(self, member: str) -> Mapping[str, bytes]:
        """All that a member says, as far as it is known here."""
        return self._gossip.of(member)

    def changes(self, *, buffer_max: int = BUFFER_EVENTS_MAX) -> StateStream:
        """Every change of another member's keys from now on; what a full buffer costs is told."""
        stream = StateStream(buffer_max=buffer_max)
        self._feed.add(stream)
        return stream

    # -- for the runtime

    def told(self, event: object) -> None:
        assert isinstance(event, StateChanged)
        self._feed.put(event)

    def end(self) -> None:
        self._feed.end()
