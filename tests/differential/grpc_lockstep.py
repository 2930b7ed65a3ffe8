"""The same calls to etcd and to Quoracy, one after the other, every answer compared at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from quoracy.wire.etcd import rpc
from quoracy.wire.protobuf import Message
from tests.differential.brief import brief
from tests.differential.grpc_agreement import comparable
from tests.differential.grpc_sides import Answer, Ports, Refusal, Side, connected, official_bytes
from tests.differential.grpc_watches import StreamPair, Watching

__all__ = ["Lockstep", "in_lockstep"]

_SHOWN_MAX = 4_000


class Lockstep:
    """Two servers in step: `revision` and `compact_revision` are those of both."""

    def __init__(self, etcd: Side, ours: Side) -> None:
        self.etcd, self.ours = etcd, ours
        self.name = ""
        self.calls = 0
        self.revision = 1
        self.compact_revision = 0
        self.asked: Counter[str] = Counter()
        self.refused: Counter[Refusal] = Counter()
        self.news: Counter[str] = Counter()
        self.events = 0
        self.streams: list[StreamPair] = []

    async def ask(self, request: Message) -> Answer:
        """Ask both; the answer is ours, after it was found equal to etcd's."""
        self._count(type(request).__name__)
        data = official_bytes(request)
        if isinstance(request, rpc.LeaseKeepAliveRequest):
            asking = self.etcd.keep_alive(data), self.ours.keep_alive(data)
        else:
            kind = type(request)
            asking = self.etcd.ask(kind, data), self.ours.ask(kind, data)
        theirs, ours = await asyncio.gather(*asking)
        self._compare(request, comparable(request, theirs), comparable(request, ours))
        if isinstance(ours, Refusal):
            self.refused[ours] += 1
            return ours
        self.revision = max(self.revision, ours.get("header", {}).get("revision", 0))
        if isinstance(request, rpc.CompactionRequest):
            self.compact_revision = max(self.compact_revision, request.revision)
        return ours

    async def ask_at(self, path: str, data: bytes) -> tuple[bytes | Refusal, bytes | Refusal]:
        """Any bytes to any method of both; etcd's answer, then ours."""
        self._count(path)
        theirs, ours = await asyncio.gather(self.etcd.ask_at(path, data), self.ours.ask_at(path, data))
        return theirs, ours

    # -- watches -----------------------------------------------------------------------------

    def open_stream(self) -> StreamPair:
        stream = StreamPair(self.etcd, self.ours)
        self.streams.append(stream)
        return stream

    async def close_streams(self) -> None:
        streams, self.streams = self.streams, []
        await asyncio.gather(*(stream.close() for stream in streams))

    async def watch(self, stream: StreamPair, request: rpc.WatchCreateRequest) -> Watching | None:
        """Create a watch on both; None if they refused it, or ended it as compacted."""
        created = await self._told(stream, rpc.WatchRequest(create_request=request))
        if created.get("canceled"):
            self.news[created.get("cancel_reason", "")] += 1
            return None
        id = created.get("watch_id", 0)
        if 0 < request.start_revision < self.compact_revision:
            await self._same_news(stream, "a canceled watch")
            self.news["compacted"] += 1
            stream.spent.add(id)
            return None
        watch = Watching(id, request, self.revision, self.compact_revision)
        stream.watches[id] = watch
        self.news["created"] += 1
        return watch

    async def cancel(self, stream: StreamPair, id: int) -> None:
        """Cancel a watch that has heard everything; one that is not there is not answered."""
        request = rpc.WatchRequest(cancel_request=rpc.WatchCancelRequest(watch_id=id))
        self.news["cancel"] += 1
        if id in stream.watches or id in stream.spent:
            stream.watches.pop(id, None)
            stream.spent.discard(id)
            await self._told(stream, request)
        else:
            self._count("WatchRequest")
            await stream.say(request)

    async def progress(self, stream: StreamPair) -> None:
        """Ask for progress on a stream that has heard everything."""
        self.news["progress"] += 1
        await self._told(stream, rpc.WatchRequest(progress_request=rpc.WatchProgressRequest()))

    async def settle(self) -> None:
        """Every watch hears everything, and both have heard the same."""
        watches = [(stream, watch) for stream in self.streams for watch in stream.watches.values()]
        keys = sorted({watch.first_key for _, watch in watches})
        marks = [
            [rpc.RequestOp(request_put=rpc.PutRequest(key=key)) for key in keys],
            [rpc.RequestOp(request_delete_range=rpc.DeleteRangeRequest(key=key)) for key in keys],
        ]
        marked = []
        for ops in marks if keys else ():
            await self.ask(rpc.TxnRequest(success=ops))
            marked.append(self.revision)
        for stream, watch in watches:
            mark = marked[1] if watch.hears_deletes else marked[0]
            if not watch.is_deaf and not watch.is_ahead_of(mark):
                await stream.heard_up_to(watch, mark)
                theirs, ours = stream.new_events(watch)
                self._compare(watch.request, theirs, ours)
                self.events += len(ours)
        for stream in self.streams:
            unheard = stream.unheard_news()
            assert not unheard, f"{self.name}, call {self.calls}: nobody asked for {unheard}"

    async def _told(self, stream: StreamPair, request: rpc.WatchRequest) -> dict[str, Any]:
        self._count("WatchRequest")
        await stream.say(request)
        return await self._same_news(stream, request)

    async def _same_news(self, stream: StreamPair, about: object) -> dict[str, Any]:
        theirs, ours = await stream.news()
        self._compare(about, theirs, ours)
        return ours

    # -- comparing ---------------------------------------------------------------------------

    def _count(self, kind: str) -> None:
        self.calls += 1
        self.asked[kind] += 1

    def _compare(self, about: object, theirs: Any, ours: Any) -> None:
        if theirs == ours:
            return
        said = about if isinstance(about, str) else brief(about)
        raise AssertionError(
            f"{self.name}, call {self.calls} "
            f"(revision {self.revision}, compacted to {self.compact_revision}):\n"
            f"{_short(said)}\n  etcd:    {_short(theirs)}\n  Quoracy: {_short(ours)}"
        )


def _short(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}... ({len(text):,} characters)"


@asynccontextmanager
async def in_lockstep(ports: Ports) -> AsyncIterator[Lockstep]:
    async with connected("etcd", ports.etcd) as etcd, connected("Quoracy", ports.ours) as ours:
        lockstep = Lockstep(etcd, ours)
        try:
            yield lockstep
        finally:
            await lockstep.close_streams()
