"""Keep-alives of leases, over one stream for all of them.

The server answers each request in turn, so the answers to one lease come in the order it was asked for.
A request whose stream is lost fails with it.  The caller may send it again: renewing a lease twice is
renewing it.
"""

from __future__ import annotations

import asyncio
from collections import deque

from quoracy.errors import QuoracyError, StoreClosed
from quoracy.remote.calls import StreamCall
from quoracy.remote.dial import Channel
from quoracy.remote.errors import CallLost, DeadlinePassed
from quoracy.wire.etcd.rpc import LeaseKeepAliveRequest, LeaseKeepAliveResponse

__all__ = ["LeaseKeeper"]

_PATH = "/etcdserverpb.Lease/LeaseKeepAlive"

# Requests without an answer; more are refused, since the server is not keeping up.
WAITING_MAX = 100_000


class LeaseKeeper:
    """The keep-alive stream of one store."""

    def __init__(self) -> None:
        self._stream: StreamCall | None = None
        self._channel: Channel | None = None
        self._token: str | None = None
        self._reader: asyncio.Task[None] | None = None
        self._waiting: dict[int, deque[asyncio.Future[int]]] = {}
        self._waiting_count = 0

    async def keep(self, lease: int, channel: Channel, token: str | None, deadline: float) -> int:
        """Renew a lease: the seconds it has now, 0 if there is none.

        Raises `GrpcError` with the status the stream ended with, or `CallLost`.
        """
        stream = self._stream_on(channel, token)
        if self._waiting_count >= WAITING_MAX:
            raise CallLost(f"{self._waiting_count:,} keep-alives wait for an answer", left=False)
        loop = asyncio.get_running_loop()
        began = loop.time()
        answer: asyncio.Future[int] = loop.create_future()
        self._waiting.setdefault(lease, deque()).append(answer)
        self._waiting_count += 1
        stream.send_soon(LeaseKeepAliveRequest(ID=lease).encode())
        try:
            async with asyncio.timeout_at(deadline):
                return await answer
        except TimeoutError as error:
            raise DeadlinePassed(loop.time() - began) from error

    async def close(self) -> None:
        waiting, self._waiting, self._waiting_count = self._waiting, {}, 0
        _fail(waiting, StoreClosed())
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.wait([self._reader])

    def _stream_on(self, channel: Channel, token: str | None) -> StreamCall:
        stream = self._stream
        if stream is None or stream.ended or channel is not self._channel or token != self._token:
            if self._reader is not None:
                self._reader.cancel()
            waiting, self._waiting = self._waiting, {}
            self._waiting_count = 0
            _fail(waiting, CallLost("the keep-alive stream was lost", left=True))
            if stream is not None:
                stream.cancel()
            stream = self._stream = channel.stream(_PATH, token=token)
            self._channel, self._token = channel, token
            self._reader = asyncio.create_task(
                self._read(stream, self._waiting), name="quoracy-keep-alives"
            )
        return stream

    async def _read(self, stream: StreamCall, waiting: dict[int, deque[asyncio.Future[int]]]) -> None:
        try:
            while True:
                response = LeaseKeepAliveResponse.decode(await stream.receive())
                asked = waiting.get(response.ID)
                if asked:
                    if self._waiting is waiting:
                        self._waiting_count -= 1
                    answer = asked.popleft()
                    if not asked:
                        del waiting[response.ID]
                    if not answer.done():
                        answer.set_result(response.TTL)
        except QuoracyError as error:
            if self._waiting is waiting:
                self._waiting, self._waiting_count = {}, 0
            _fail(waiting, error)
        finally:
            stream.cancel()


def _fail(waiting: dict[int, deque[asyncio.Future[int]]], error: QuoracyError) -> None:
    for answers in waiting.values():
        for answer in answers:
            if not answer.done():
                answer.set_exception(error)
