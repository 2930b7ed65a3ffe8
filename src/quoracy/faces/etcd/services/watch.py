"""etcd's Watch service: many watches on one stream of messages.

    requests -> reader: create, cancel, ask for progress
    watches in turn -> pump: their next batches -> responses -> send, which waits for the client

A stream has one pump, a task that takes batches from the store only when those before have been taken
over by the client's connection.  Nothing is queued on top of what the store bounds already: a client
that does not read makes its watches lag, and the store feeds them from history when it reads again.
Watches take turns, a batch each, so a busy one does not hold up the others of its stream.

Invariants
    * `created` comes before any event of its watch, `canceled` after all of them.
    * An answer to a progress request (watch id -1) is sent when every watch of the stream has delivered
      all up to its revision; never before  [etcd#15220].  Requests that come meanwhile share it.
    * A watch that starts in the future says nothing, no progress either, until what comes next is what
      it waits for; and its stream answers no progress request before  [etcd#20221].
    * A stream has at most `watches_max` watches; one more is answered as created and canceled.
    * The stream goes on when the client has said all it wants to say: it ends when the call does.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence

from quoracy.errors import Compacted, Rejected
from quoracy.faces.etcd.errors import status_of
from quoracy.faces.etcd.methods import Method, Send, Streaming
from quoracy.faces.etcd.services import translate
from quoracy.faces.etcd.services.member import Headers
from quoracy.store.api import Store, Watch
from quoracy.store.model import Event, WatchBatch
from quoracy.store.rules import Limits
from quoracy.wire.etcd.rpc import (
    FilterType,
    WatchCreateRequest,
    WatchRequest,
    WatchResponse,
)

__all__ = ["WATCHES_MAX", "WatchService"]

# Differs from etcd, which has no such bound: a client that wants more opens another stream.
WATCHES_MAX = 10_000

# etcd's: what a response may be larger than the largest request.  [server/embed/config.go]
_FRAGMENT_OVERHEAD_BYTES = 512 * 1024
# More than everything of a key-value on the wire that is neither key nor value.
_KEY_VALUE_OVERHEAD_BYTES = 80

# After this many requests of one client in a row, others have their turn: with requests that are here
# already, and a client that reads, nothing else would make them wait.
_IN_A_ROW_MAX = 32

# What is sent at once: responses to many watches of a stream.
_TOGETHER_BYTES = 32 * 1024
_TOGETHER_MAX = 256

_NO_WATCH = -1
_NO_REVISION = 2**63 - 1
_PROGRESS_MIN_S = 0.1

_RANGE_EMPTY = "mvcc: watcher range is empty"
_COMPACTED = "etcdserver: mvcc: required revision has been compacted"
_ID_TAKEN = "mvcc: duplicate watch ID provided on the WatchStream"


class WatchService:
    """`progress_notify_s`: how long a watch that asked for it is silent before it says where it is."""

    def __init__(
        self,
        store: Store,
        headers: Headers,
        limits: Limits,
        *,
        progress_notify_s: float = 600.0,
        watches_max: int = WATCHES_MAX,
    ) -> None:
        self.store = store
        self.headers = headers
        self.progress_notify_s = max(progress_notify_s, _PROGRESS_MIN_S)
        self.watches_max = watches_max
        self.fragment_bytes = limits.request_bytes_max + _FRAGMENT_OVERHEAD_BYTES
        self._last_batch: WatchBatch | None = None
        self._last_response = WatchResponse()
        self._last_encoded = b""

    def methods(self) -> list[Method]:
        return [
            Streaming(
                "/etcdserverpb.Watch/Watch",
                WatchRequest,
                WatchResponse,
                self.watch,
                client_streams=True,
                routes=("/v3/watch",),
            )
        ]

    async def watch(self, requests: AsyncIterator[WatchRequest], send: Send[WatchResponse]) -> None:
        stream = _Stream(self, send)
        try:
            await stream.serve(requests)
        finally:
            await stream.close()

    def response_of(self, batch: WatchBatch, watch: _Watch) -> _BatchResponse:
        """The batch as one response to one watch.

        The store hands one batch to all watches of the same key: what was made and encoded for the
        first serves the others.
        """
        if batch is not self._last_batch:
            header = self.headers.at(batch.revision)
            events = [translate.event_message(event) for event in batch.events]
            self._last_response = WatchResponse(header=header, events=events)
            self._last_encoded = self._last_response.encode()
            self._last_batch = batch
        shared = self._last_response
        return _BatchResponse(
            header=shared.header,
            watch_id=watch.id,
            events=shared.events,
            encoded=self._last_encoded + watch.encoded_id,
        )


class _BatchResponse(WatchResponse, kw_only=True):
    """A response that comes with its bytes.

    A message's fields may come in any order, so those of the batch and that of the watch, each encoded
    once, are put together.
    """

    encoded: bytes = b""

    def encode(self) -> bytes:
        return self.encoded


class _Watch:
    """One watch of a stream; `is_due` while it stands in line for a turn."""

    __slots__ = (
        "_due",
        "_left",
        "batches",
        "encoded_id",
        "fragment",
        "id",
        "is_due",
        "progress_notify",
    )

    def __init__(self, id: int, batches: Watch, request: WatchCreateRequest, due: _Due) -> None:
        self.id = id
        self.encoded_id = WatchResponse(watch_id=id).encode()
        self.batches = batches
        self.progress_notify = request.progress_notify
        self.fragment = request.fragment
        self.is_due = False
        self._due = due
        self._left = False

    def ready(self) -> None:
        """There may be something for it: let it have a turn."""
        if not self.is_due:
            self.is_due = True
            self._due.add(self)

    async def leave(self) -> None:
        if self._left:
            return
        self._left = True
        await self.batches.__aexit__(None, None, None)


class _Due:
    """The watches of a stream that wait for a turn, and the pump that waits for them."""

    __slots__ = ("_waiter", "watches")

    def __init__(self) -> None:
        self.watches: deque[_Watch] = deque()
        self._waiter: asyncio.Future[None] | None = None

    def add(self, watch: _Watch) -> None:
        self.watches.append(watch)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self) -> None:
        while not self.watches:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None


class _Stream:
    """One call of Watch."""

    def __init__(self, service: WatchService, send: Send[WatchResponse]) -> None:
        self._service = service
        self._headers = service.headers
        self._send_now = send
        self._turn = asyncio.Lock()
        self._watches: dict[int, _Watch] = {}
        # Ids of watches that compaction ended.  As in etcd they stay taken until the client cancels
        # them: its cancel may be on the way already, and must not end a later watch of the same id.
        self._spent: set[int] = set()
        self._next_id = 0
        self._due = _Due()
        # Watches that have not yet reported their progress since a client asked; None if none asked.
        self._asked: set[_Watch] | None = None
        self._progress_revision = 0

    async def serve(self, requests: AsyncIterator[WatchRequest]) -> None:
        """Returns never; raises what ends the stream."""
        reader = asyncio.ensure_future(self._read(requests))
        pump = asyncio.ensure_future(self._pump())
        try:
            await asyncio.wait((reader, pump), return_when=asyncio.FIRST_COMPLETED)
            if reader.done():
                reader.result()
            await pump
        finally:
            reader.cancel()
            pump.cancel()
            await asyncio.gather(reader, pump, return_exceptions=True)

    async def close(self) -> None:
        watches = list(self._watches.values())
        self._watches.clear()
        for number, watch in enumerate(watches, 1):
            await watch.leave()
            if number % _IN_A_ROW_MAX == 0:
                await asyncio.sleep(0)

    async def _send(self, *responses: WatchResponse) -> None:
        async with self._turn:
            await self._send_now(*responses)

    # -- requests ----------------------------------------------------------------

    async def _read(self, requests: AsyncIterator[WatchRequest]) -> None:
        in_a_row = 0
        async for request in requests:
            in_a_row += 1
            if in_a_row >= _IN_A_ROW_MAX:
                in_a_row = 0
                await asyncio.sleep(0)
            if request.create_request is not None:
                await self._create(request.create_request)
            elif request.cancel_request is not None:
                await self._cancel(request.cancel_request.watch_id)
            elif request.progress_request is not None:
                await self._ask_progress()
            # Anything else is from a later protocol than ours, and left alone as etcd does.

    async def _create(self, request: WatchCreateRequest) -> None:
        refusal = self._refusal(request)
        if refusal:
            await self._send(await self._refused(refusal))
            return
        try:
            batches = self._open(request)
            await batches.__aenter__()
        except Rejected as error:
            await self._send(await self._refused(status_of(error)[1]))
            return
        watch = _Watch(self._choose_id(request.watch_id), batches, request, self._due)
        self._watches[watch.id] = watch
        if self._asked is not None:
            # Before `created` is sent: an answer that comes after it speaks of this watch too.
            self._asked.add(watch)
            batches.request_progress()
        try:
            # A client that loses the stream resumes after this revision: of a watch from now on it must
            # be where that one began.
            is_from_now = not request.start_revision
            revision = batches.revision if is_from_now else await self._headers.revision()
            await self._send(
                WatchResponse(header=self._headers.at(revision), watch_id=watch.id, created=True)
            )
        except BaseException:
            del self._watches[watch.id]
            await watch.leave()
            raise
        watch.batches.on_ready(watch.ready)
        watch.ready()  # what came meanwhile called nobody

    def _refusal(self, request: WatchCreateRequest) -> str:
        """Why a watch cannot be, in etcd's words and in its order; empty if it can."""
        end = request.range_end
        if request.start_revision < 0:  # as etcd since 3.5.24; before, it lost history in silence
            return _COMPACTED
        if end not in (b"", b"\0") and (request.key or b"\0") >= end:
            return _RANGE_EMPTY
        if request.watch_id and self._is_taken(request.watch_id):
            return _ID_TAKEN
        if len(self._watches) + len(self._spent) >= self._service.watches_max:
            most = self._service.watches_max
            return f"etcdserver: too many requests: a stream has at most {most} watches; open another"
        return ""

    async def _refused(self, reason: str) -> WatchResponse:
        return WatchResponse(
            header=await self._headers.now(),
            watch_id=_NO_WATCH,
            created=True,
            canceled=True,
            cancel_reason=reason,
        )

    def _open(self, request: WatchCreateRequest) -> Watch:
        start = request.start_revision
        return self._service.store.watch(
            translate.keys_of(request.key or b"\0", request.range_end),
            after=start - 1 if start else None,  # 0 is from now on
            puts=FilterType.NOPUT not in request.filters,
            deletes=FilterType.NODELETE not in request.filters,
            prev_kv=request.prev_kv,
            progress_s=self._service.progress_notify_s if request.progress_notify else None,
        )

    def _choose_id(self, wanted: int) -> int:
        if wanted:
            return wanted
        while self._is_taken(self._next_id):
            self._next_id += 1
        self._next_id += 1
        return self._next_id - 1

    def _is_taken(self, id: int) -> bool:
        return id in self._watches or id in self._spent

    async def _cancel(self, id: int) -> None:
        """A watch that is not there is not answered, as etcd does not."""
        if id in self._spent:
            self._spent.remove(id)
            await self._send(
                WatchResponse(header=await self._headers.now(), watch_id=id, canceled=True)
            )
            return
        watch = self._watches.pop(id, None)
        if watch is None:
            return
        await watch.leave()
        # Sent after what the pump has taken of it already, which holds the turn or waits for it.
        await self._send(
            WatchResponse(header=await self._headers.now(), watch_id=watch.id, canceled=True)
        )
        await self._heard_of(watch, None)

    # -- batches -----------------------------------------------------------------

    async def _pump(self) -> None:
        """Returns never; what ends a watch unasked, such as a closed store, ends the stream."""
        while True:
            await self._due.wait()
            together: list[WatchResponse] = []
            size = 0
            due = self._due.watches
            while due and size < _TOGETHER_BYTES and len(together) < _TOGETHER_MAX:
                watch = due.popleft()
                watch.is_due = False
                if self._watches.get(watch.id) is not watch:
                    continue
                try:
                    batch = watch.batches.poll()
                except Compacted as error:
                    await self._send_all(together)
                    await self._compacted(watch, error)
                    break
                if batch is None:
                    continue
                watch.ready()
                if batch.events and not self._is_to_be_cut(watch, batch):
                    response = self._service.response_of(batch, watch)
                    together.append(response)
                    size += len(response.encoded)
                    continue
                await self._send_all(together)
                if batch.events:
                    await self._send_in_pieces(watch, batch)
                else:
                    await self._progressed(watch, batch.revision)
                break
            else:
                await self._send_all(together)
            await asyncio.sleep(0)

    async def _send_all(self, together: Sequence[WatchResponse]) -> None:
        if together:
            await self._send(*together)

    def _is_to_be_cut(self, watch: _Watch, batch: WatchBatch) -> bool:
        return watch.fragment and _size_at_most(batch.events) >= self._service.fragment_bytes

    async def _send_in_pieces(self, watch: _Watch, batch: WatchBatch) -> None:
        response = self._service.response_of(batch, watch)
        for part in _fragments(response, batch.events, self._service.fragment_bytes):
            if self._watches.get(watch.id) is not watch:
                return
            await self._send(part)

    async def _compacted(self, watch: _Watch, error: Compacted) -> None:
        # As etcd's, it has no revision and no reason: compact_revision says it all.
        await watch.leave()
        if self._watches.get(watch.id) is watch:
            del self._watches[watch.id]
            self._spent.add(watch.id)
            await self._send(
                WatchResponse(
                    header=self._headers.at(0),
                    watch_id=watch.id,
                    canceled=True,
                    compact_revision=error.oldest,
                )
            )
            await self._heard_of(watch, None)

    # -- progress ------------------------------------------------------------------------

    async def _ask_progress(self) -> None:
        if self._asked is not None:
            return
        if not self._watches:
            await self._send(WatchResponse(header=await self._headers.now(), watch_id=_NO_WATCH))
            return
        self._asked = set(self._watches.values())
        self._progress_revision = _NO_REVISION
        for watch in self._asked:
            watch.batches.request_progress()

    async def _progressed(self, watch: _Watch, revision: int) -> None:
        if self._asked is not None and watch in self._asked:
            await self._heard_of(watch, revision)
        elif watch.progress_notify and self._watches.get(watch.id) is watch:
            await self._send(WatchResponse(header=self._headers.at(revision), watch_id=watch.id))

    async def _heard_of(self, watch: _Watch, revision: int | None) -> None:
        """The watch delivered everything up to `revision`, or is gone: answer if it was the last."""
        asked = self._asked
        if asked is None or watch not in asked:
            return
        asked.discard(watch)
        if revision is not None:
            self._progress_revision = min(self._progress_revision, revision)
        if not asked:
            self._asked = None
            if self._progress_revision == _NO_REVISION:  # every watch that was asked is gone
                self._progress_revision = await self._headers.revision()
            await self._send(
                WatchResponse(header=self._headers.at(self._progress_revision), watch_id=_NO_WATCH)
            )


def _size_at_most(events: Sequence[Event]) -> int:
    """Not less than what the events take on the wire."""
    return sum(map(_event_size_at_most, events))


def _event_size_at_most(event: Event) -> int:
    kv, prev = event.kv, event.prev_kv
    size = len(kv.key) + len(kv.value) + _KEY_VALUE_OVERHEAD_BYTES
    if prev is not None:
        size += len(prev.key) + len(prev.value) + _KEY_VALUE_OVERHEAD_BYTES
    return size


def _fragments(
    response: WatchResponse, events: Sequence[Event], size_max: int
) -> Iterator[WatchResponse]:
    """The response in pieces below `size_max`, or of one event; all but the last say so."""
    start, size = 0, 0
    for index, event in enumerate(events):
        event_size = _event_size_at_most(event)
        if index > start and size + event_size >= size_max:
            yield _piece(response, start, index, is_last=False)
            start, size = index, 0
        size += event_size
    yield _piece(response, start, len(events), is_last=True)


def _piece(response: WatchResponse, start: int, end: int, *, is_last: bool) -> WatchResponse:
    return WatchResponse(
        header=response.header,
        watch_id=response.watch_id,
        fragment=not is_last,
        events=response.events[start:end],
    )
