"""Watches on both servers at once: what each hears, and when it has heard everything.

etcd may put several revisions into one response or several, and the responses of different watches in
any order.  So what is compared is, for each watch, its events one after the other; and all other
messages of a stream, whole and in order.

When a watch has heard everything is known by a mark: its first key is put and deleted, and once it has
heard of that it has heard of all before, since events come in the order of revisions.  A request for
progress would not do: etcd 3.5.1 answers it ahead of events  [etcd#15220].
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from quoracy.wire.etcd import rpc
from tests.differential.grpc_agreement import without_ids
from tests.differential.grpc_sides import Fields, Side, StreamCall, official_bytes

__all__ = ["StreamPair", "Watching"]

_NO_WATCH = -1


@dataclass
class _Log:
    """What one server said of one watch."""

    events: list[Fields] = field(default_factory=list)
    fragment_open: bool = False

    @property
    def last_revision(self) -> int:
        return int(self.events[-1]["kv"]["mod_revision"]) if self.events else 0


class _Hearing:
    """One watch stream of one server, its messages sorted out as they come."""

    def __init__(self, side: Side) -> None:
        self.name = side.name
        self.call: StreamCall = side.watch_stream()
        self.news: list[Fields] = []  # everything but events, not yet taken
        self.logs: dict[int, _Log] = {}
        self._sorted = 0

    async def next_news(self) -> Fields:
        try:
            while not self.news:
                await self.call.wait_for_more()
                self.sort()
        except TimeoutError:
            return {"silence": self.name}  # the other one's news is worth showing
        return self.news.pop(0)

    async def heard_up_to(self, id: int, revision: int) -> None:
        try:
            while self.logs[id].last_revision < revision:
                await self.call.wait_for_more()
                self.sort()
        except TimeoutError:
            last = self.logs[id].events[-1:]
            raise AssertionError(
                f"{self.name} says nothing more of watch {id}; revision {revision} is missing. "
                f"The last events it sent: {last}; other news: {self.news}"
            ) from None

    def sort(self) -> None:
        for message in self.call.heard[self._sorted :]:
            self._take(message)
        self._sorted = len(self.call.heard)

    def _take(self, message: Fields) -> None:
        id = message.get("watch_id", 0)
        events = message.get("events", [])
        if not events:
            self.news.append(without_ids(message))
            if message.get("created") and not message.get("canceled"):
                self.logs[id] = _Log()
            return
        log = self.logs[id]
        revisions = [event["kv"]["mod_revision"] for event in events]
        assert revisions == sorted(revisions), (self.name, message)
        assert message["header"]["revision"] >= revisions[-1], (self.name, message)
        assert log.last_revision <= revisions[0], (self.name, message)
        # All of a revision is in one response, or in fragments that say so.
        assert log.fragment_open or log.last_revision < revisions[0], (self.name, message)
        log.fragment_open = message.get("fragment", False)
        allowed = {"header", "watch_id", "events", "fragment"}
        assert set(message) <= allowed, (self.name, message)
        log.events += events


@dataclass
class Watching:
    """A watch that both servers made."""

    id: int
    request: rpc.WatchCreateRequest
    created_at: int
    compact_revision: int
    compared: int = 0

    @property
    def first_key(self) -> bytes:
        return self.request.key or b"\0"

    @property
    def is_deaf(self) -> bool:
        return {0, 1} <= set(self.request.filters)

    @property
    def hears_deletes(self) -> bool:
        return 1 not in self.request.filters

    def is_ahead_of(self, revision: int) -> bool:
        return self.request.start_revision > revision

    def plain(self, events: list[Fields]) -> list[Fields]:
        """Without deletes of the revision it was compacted to: etcd < 3.6 loses those  [etcd#19179]."""
        lost = self.compact_revision
        return [
            event
            for event in events
            if not (event.get("type") == 1 and event["kv"]["mod_revision"] == lost)
        ]


class StreamPair:
    """One watch stream on each server, told the same."""

    def __init__(self, etcd: Side, ours: Side) -> None:
        self._pair = (_Hearing(etcd), _Hearing(ours))
        self.watches: dict[int, Watching] = {}
        # Ids of watches that compaction ended: they stay taken until they are canceled.
        self.spent: set[int] = set()

    async def say(self, request: rpc.WatchRequest) -> None:
        data = official_bytes(request)
        await asyncio.gather(*(each.call.say(data) for each in self._pair))

    async def say_no_more(self) -> None:
        await asyncio.gather(*(each.call.say_no_more() for each in self._pair))

    async def news(self) -> tuple[Fields, Fields]:
        etcd, ours = self._pair
        theirs, our = await asyncio.gather(etcd.next_news(), ours.next_news())
        return theirs, our

    async def etcd_news(self) -> Fields:
        return await self._pair[0].next_news()

    async def our_news(self) -> Fields:
        return await self._pair[1].next_news()

    async def heard_up_to(self, watch: Watching, revision: int) -> None:
        await asyncio.gather(*(each.heard_up_to(watch.id, revision) for each in self._pair))

    def new_events(self, watch: Watching) -> tuple[Any, Any]:
        """What each delivered since this was last asked."""
        logs = [each.logs[watch.id].events for each in self._pair]
        since, watch.compared = watch.compared, max(map(len, logs))
        if since == 0:  # only at the beginning can some be lost
            theirs, ours = (watch.plain(log) for log in logs)
            if theirs == ours:
                # Of what one lost, the other has more: counted from here on both begin anew.
                for each in self._pair:
                    each.logs[watch.id].events[:] = each.logs[watch.id].events[-1:]
                watch.compared = min(1, len(logs[0]))
            return theirs, ours
        return logs[0][since:], logs[1][since:]

    def unheard_news(self) -> list[tuple[str, Fields]]:
        """Messages nobody waited for: there should be none."""
        for each in self._pair:
            each.sort()
        return [(each.name, message) for each in self._pair for message in each.news]

    async def close(self) -> None:
        await asyncio.gather(*(each.call.close() for each in self._pair))
