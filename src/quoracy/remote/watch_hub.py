"""All watches of a store, on one gRPC stream; and that stream made anew whenever it is lost.

Invariants
    * Watches whose stream was lost are made anew from where each of them is, on the next connection;
      a consumer notices nothing but the delay.  Nothing ends a watch but its consumer, the store's
      end, or a server that says no (compacted, not permitted).
    * The stream is always read: a watch whose consumer lags rests, it does not hold the stream up.
    * Progress is announced only on proof.  etcd before 3.4.25 and 3.5.8 answers a progress request even
      if events are still on their way [etcd#15220]; there, a watch of all keys proves it.
    * etcd before 3.5.2 calls a watch with an old token "permission denied", so a refusal is believed
      only of a token that was made for this connection.
    * A server's answer to every creation is one `created` message, in the order they were asked for.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import re
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from quoracy.errors import (
    Compacted,
    ProtocolError,
    QuoracyError,
    Rejected,
    StoreClosed,
    Unavailable,
    Unsupported,
)
from quoracy.remote.calls import StreamCall
from quoracy.remote.dial import Channel
from quoracy.remote.errors import (
    CallLost,
    Reason,
    error_of,
    may_try_again,
    reason_of,
    reason_of_text,
)
from quoracy.remote.requests import Kind, Requests
from quoracy.remote.translate import by_revision, events_of, watch_request
from quoracy.remote.watch import RemoteWatch
from quoracy.store.model import KeyRange, Keys
from quoracy.wire.etcd import rpc
from quoracy.wire.etcd.fast_codec import decode_watch_events
from quoracy.wire.grpc import GrpcError

__all__ = ["WATCH_PATH", "WatchHub", "reports_progress_reliably"]

logger = logging.getLogger(__name__)

WATCH_PATH = "/etcdserverpb.Watch/Watch"

# A server that answers progress requests only when it can prove them answers some of them never.
_PROGRESS_AGAIN_S = 0.5
_AGAIN_FIRST_S = 0.05
_AGAIN_MAX_S = 5.0

_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")


class WatchHub:
    """The watches of one store."""

    def __init__(
        self,
        requests: Requests,
        *,
        newest_revision: Callable[[Keys], Awaitable[int]],
        server_version: Callable[[Channel], Awaitable[str]],
        buffer_events_max: int,
        buffer_bytes_max: int,
        rng: random.Random,
    ) -> None:
        self.closed = False
        self.buffer_events_max, self.buffer_bytes_max = buffer_events_max, buffer_bytes_max
        self.newest_revision = newest_revision
        self._server_version = server_version
        self._requests = requests
        self._rng = rng
        self._watches: set[RemoteWatch] = set()
        self._channel: Channel | None = None
        self._stream: StreamCall | None = None
        self._by_id: dict[int, RemoteWatch] = {}
        self._creating: deque[tuple[RemoteWatch, int]] = deque()
        self._covered: frozenset[int] = frozenset()
        self._progress_answered = asyncio.Event()
        self._heard = False  # anything, on this stream
        self._unread: Exception | None = None  # why the stream was given up: what it said
        # What the stream was opened with, and the last such pair whose token was made for it.
        self._opened_with: tuple[str | None, Channel] | None = None
        self._believed: tuple[str | None, Channel] | None = None
        self._runner: asyncio.Task[None] | None = None
        self._progress: asyncio.Task[None] | None = None

    @property
    def watches_count(self) -> int:
        return len(self._watches)

    # -- for watches --------------------------------------------------------------------------

    async def enter(self, watch: RemoteWatch, entered: asyncio.Future[None]) -> None:
        """Start a watch; returns when the server confirmed it."""
        if self.closed:
            raise StoreClosed
        self._watches.add(watch)
        if self._stream is not None:
            self._create(watch)
        elif self._runner is None:
            self._runner = asyncio.create_task(self._run(), name="quoracy-watches")
            self._runner.add_done_callback(self._runner_over)
        try:
            async with asyncio.timeout(self._requests.timeout_s):
                await entered
        except TimeoutError as error:
            self.leave(watch)
            raise Unavailable(
                f"the watch was not confirmed within {self._requests.timeout_s:g} s by "
                f"{self._requests.endpoints}. Try again later."
            ) from error
        except BaseException:
            self.leave(watch)
            raise

    def leave(self, watch: RemoteWatch) -> None:
        self._watches.discard(watch)
        self._cancel(watch)

    def rest(self, watch: RemoteWatch) -> None:
        """The consumer lags: the server sends it no more until it `go_on`es."""
        watch.resting = True
        self._cancel(watch)

    def go_on(self, watch: RemoteWatch) -> None:
        watch.resting = False
        if self._stream is not None:
            self._create(watch)

    def ask_progress(self) -> None:
        if self._progress is None and self._stream is not None:
            self._progress = asyncio.create_task(self._serve_progress(), name="quoracy-progress")
            self._progress.add_done_callback(self._progress_over)

    async def close(self) -> None:
        self.closed = True
        for task in (self._runner, self._progress):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        self._fail_all(StoreClosed())

    # -- the stream ---------------------------------------------------------------------------

    def _create(self, watch: RemoteWatch) -> None:
        assert self._stream is not None
        watch.id = None
        watch.epoch += 1
        self._creating.append((watch, watch.epoch))
        self._stream.send_soon(rpc.WatchRequest(create_request=watch.request()).encode())

    def _cancel(self, watch: RemoteWatch) -> None:
        watch.epoch += 1  # a creation that is on its way no longer counts
        if watch.id is not None:
            self._by_id.pop(watch.id, None)
            self._cancel_id(watch.id)
            watch.id = None

    def _cancel_id(self, watch_id: int) -> None:
        if self._stream is not None:
            request = rpc.WatchCancelRequest(watch_id=watch_id)
            self._stream.send_soon(rpc.WatchRequest(cancel_request=request).encode())

    async def _run(self) -> None:
        fruitless = 0
        renewed = False
        while self._watches:
            channel = await self._connect()
            if channel is None:
                continue
            token = self._requests.authentication.token
            self._opened_with = (token, channel)
            if renewed:
                self._believed, renewed = self._opened_with, False
            self._heard = False
            try:
                stream = self._stream = channel.stream(WATCH_PATH, token=token)
                self._channel = channel
                for watch in self._watches:
                    if not watch.resting:
                        self._create(watch)
                if any(watch.wants_progress for watch in self._watches):
                    self.ask_progress()
                await self._wait_ended(stream)
            except StoreClosed as error:
                self._fail_all(error)
            except CallLost as error:
                logger.info("watches of %s go on elsewhere: %s", channel.address, error)
            except _TokenRefused:
                renewed = self._requests.authentication.refused(token)
            except GrpcError as error:
                if reason_of(error) is Reason.TOKEN_STALE and self._requests.authentication.refused(
                    token
                ):
                    pass
                elif may_try_again(error) or error.code == 0:
                    self._requests.endpoints.prefer_another(channel)
                else:
                    self._fail_all(error_of(error, "watch", write=False))
            except ProtocolError as error:
                self._fail_all(error)
            finally:
                self._detach()
            fruitless = 0 if self._heard else fruitless + 1
            if fruitless:
                pause_s = min(_AGAIN_FIRST_S * 2 ** min(fruitless, 10), _AGAIN_MAX_S)
                await asyncio.sleep(pause_s * self._rng.uniform(0.5, 1.0))

    async def _wait_ended(self, stream: StreamCall) -> None:
        """Take what comes until the stream ends; raises what it ended with."""
        self._unread = None
        # Called, not awaited: to wake a task for each event costs a node a tenth of a put.
        stream.listen(self._on_message)
        try:
            await stream.receive()
        except CallLost:
            if self._unread is not None:
                raise self._unread from None
            raise

    def _on_message(self, message: bytes) -> None:
        if self._unread is not None:
            return  # the stream was given up, and this had come before
        self._heard = True
        try:
            quick = decode_watch_events(message)
            if quick is None:
                self._on_response(rpc.WatchResponse.decode(message))
            elif (watched := self._by_id.get(quick[0])) is not None:
                watched.on_events(quick[1], fragment=False)
        except Exception as error:  # noqa: BLE001 (it ends the stream; the task handles it)
            self._unread = error
            assert self._stream is not None
            self._stream.cancel()

    async def _connect(self) -> Channel | None:
        try:
            return await self._requests.ready_channel(
                self._requests.attempts(Kind.READ, "watch", math.inf)
            )
        except StoreClosed as error:
            self._fail_all(error)
        except Unavailable as error:
            # Nothing ever worked: entering a watch fails; a watch that runs goes on waiting.
            for watch in [watch for watch in self._watches if watch.is_entering]:
                self._watches.discard(watch)
                watch.fail(error)
        except Rejected as error:
            self._fail_all(error)
        return None

    def _detach(self) -> None:
        """The stream is lost: no watch has a number any more."""
        if self._stream is not None:
            self._stream.cancel()
        self._stream = self._channel = None
        for watch in self._by_id.values():
            watch.id = None
        self._by_id.clear()
        self._creating.clear()
        self._covered = frozenset()

    def _fail_all(self, error: QuoracyError) -> None:
        watches, self._watches = self._watches, set()
        for watch in watches:
            watch.fail(error)

    def _runner_over(self, task: asyncio.Task[None]) -> None:
        self._runner = None
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("the watches of %s failed", self._requests.endpoints, exc_info=error)
            self._fail_all(Unavailable(f"watching failed: {error!r}."))
        elif self._watches and not self.closed:
            # One was entered in the very moment the task ended.
            self._runner = asyncio.create_task(self._run(), name="quoracy-watches")
            self._runner.add_done_callback(self._runner_over)

    # -- what the server says -----------------------------------------------------------------

    def _on_response(self, response: rpc.WatchResponse) -> None:
        if response.created:
            self._on_created(response)
            return
        if response.canceled:
            watch = self._by_id.pop(response.watch_id, None)
            if watch is not None:
                watch.id = None
                self._on_refused(watch, response)
            return
        if response.watch_id < 0:
            self._on_progress_of_all(response)
            return
        watch = self._by_id.get(response.watch_id)
        if watch is None:
            return  # it was left, or rests
        if response.events:
            watch.on_events(events_of(response.events), fragment=response.fragment)
        elif response.header is not None:
            watch.on_progress(response.header.revision)

    def _on_created(self, response: rpc.WatchResponse) -> None:
        if not self._creating:
            raise ProtocolError("the server confirmed a watch that nobody asked for")
        watch, epoch = self._creating.popleft()
        if watch.epoch != epoch:
            if not response.canceled:
                self._cancel_id(response.watch_id)
            return
        if response.canceled:
            self._on_refused(watch, response)
            return
        watch.id = response.watch_id
        self._by_id[response.watch_id] = watch
        watch.on_created()
        if watch.wants_progress:
            self.ask_progress()

    def _on_refused(self, watch: RemoteWatch, response: rpc.WatchResponse) -> None:
        said = response.cancel_reason or "no reason given"
        if response.compact_revision:
            error: QuoracyError = Compacted(wanted=watch.received + 1, oldest=response.compact_revision)
        else:
            reason = reason_of_text(said)
            if (
                reason in (Reason.TOKEN_STALE, Reason.DENIED)
                and self._requests.authentication.has_user
                and self._believed != self._opened_with
            ):
                raise _TokenRefused
            if reason is Reason.UNSUPPORTED:
                error = Unsupported(f"watch of {watch.keys}: {said}")
            else:
                error = Rejected(f"the server ended the watch of {watch.keys}: {said}.")
        self._watches.discard(watch)
        watch.fail(error)

    # -- progress -----------------------------------------------------------------------------

    def _on_progress_of_all(self, response: rpc.WatchResponse) -> None:
        # It speaks of the watches there were when it was asked for; one created since may be behind.
        if response.header is not None:
            for watch_id in self._covered:
                watch = self._by_id.get(watch_id)
                if watch is not None:
                    watch.on_progress(response.header.revision)
        self._covered = frozenset()
        self._progress_answered.set()

    async def _serve_progress(self) -> None:
        """Ask until every watch that wants progress, and is not resting, has it."""
        while wanting := [watch for watch in self._by_id.values() if watch.wants_progress]:
            channel, stream = self._channel, self._stream
            if channel is None or stream is None:
                return  # the next stream takes it up
            try:
                if reports_progress_reliably(await self._server_version(channel)):
                    if not self._covered:
                        self._covered = frozenset(self._by_id)
                    self._progress_answered.clear()
                    request = rpc.WatchProgressRequest()
                    stream.send_soon(rpc.WatchRequest(progress_request=request).encode())
                    await _wait(self._progress_answered, _PROGRESS_AGAIN_S)
                else:
                    newest = await self.newest_revision(wanting[0].keys)
                    await _prove_progress(
                        channel,
                        wanting,
                        newest,
                        token=self._requests.authentication.token,
                        timeout_s=self._requests.timeout_s,
                    )
                    if any(watch.wants_progress for watch in wanting):
                        await asyncio.sleep(_PROGRESS_AGAIN_S)
            except Rejected as error:
                for watch in wanting:
                    self.leave(watch)
                    watch.fail(error)
            except QuoracyError as error:
                logger.info("progress of watches is not known yet: %s", error)
                await asyncio.sleep(_PROGRESS_AGAIN_S)

    def _progress_over(self, task: asyncio.Task[None]) -> None:
        self._progress = None
        if not task.cancelled() and any(watch.wants_progress for watch in self._by_id.values()):
            self.ask_progress()  # asked for in the very moment the task ended
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("progress of watches failed", exc_info=error)
            for watch in [watch for watch in self._watches if watch.wants_progress]:
                self.leave(watch)
                watch.fail(Unavailable(f"progress is not known: {error!r}."))


class _TokenRefused(Exception):
    """The server refuses the token that this stream was opened with."""


def reports_progress_reliably(version: str) -> bool:
    """Whether the progress that this etcd reports is never ahead of its events."""
    match = _VERSION.match(version)
    if match is None:
        return False
    major, minor, patch = (int(part) for part in match.groups())
    if (major, minor) == (3, 4):
        return patch >= 25
    return (major, minor, patch) >= (3, 5, 8)


async def _wait(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return  # the caller looks for itself


async def _prove_progress(
    channel: Channel,
    watches: Sequence[RemoteWatch],
    newest: int,
    *,
    token: str | None,
    timeout_s: float,
) -> None:
    """Tell each watch what it has to receive before everything up to `newest` was delivered.

    For servers whose own word on progress cannot be trusted.  Every revision changed at least one key,
    so a watch of *all* keys that has sent revision R has sent everything up to R, however the server
    delivers it; and what it sent is what each watch still owes.  This reads all that changed since the
    watch that is furthest behind, so servers that can be trusted are asked instead.
    """
    behind = {watch: 0 for watch in watches if watch.received < newest}
    if behind:
        since = min(watch.received for watch in behind)
        stream = channel.stream(WATCH_PATH, token=token)
        create = watch_request(
            KeyRange.everything(), after=since, puts=True, deletes=True, prev_kv=False
        )
        stream.send_soon(rpc.WatchRequest(create_request=create).encode())
        try:
            async with asyncio.timeout(timeout_s):
                while not _note_owed(rpc.WatchResponse.decode(await stream.receive()), behind, newest):
                    pass
        except TimeoutError as error:
            raise Unavailable(f"no proof of progress within {timeout_s:g} s") from error
        except GrpcError as error:
            raise error_of(error, "watch of all keys, for progress", write=False) from error
        finally:
            stream.cancel()
    for watch in watches:
        watch.on_proof(newest, owed=behind.get(watch, 0))


def _note_owed(response: rpc.WatchResponse, behind: dict[RemoteWatch, int], newest: int) -> bool:
    """Note what one message shows; return whether everything up to `newest` was seen."""
    if response.canceled:
        said = response.cancel_reason
        if reason_of_text(said) is Reason.DENIED:
            raise Rejected(
                f"progress is not known: {said}. With this etcd (before 3.4.25, 3.5.8) only a user "
                "that may read all keys can know it reliably."
            )
        raise Unavailable(f"the watch of all keys ended: {said or response.compact_revision}")
    last = 0
    for revision, events in by_revision(events_of(response.events)):
        last = revision
        if revision > newest:
            return True
        for watch in behind:
            if any(watch.matches(event) for event in events):
                behind[watch] = revision
    return last >= newest and not response.fragment
