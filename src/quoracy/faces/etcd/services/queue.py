"""Quoracy's own Queue service: wait for the front of a queue of `store.contention`, and nothing else.

What a client would do itself with a watch and a read, done next to the store: who is next hears of it
one message after the release, not three.  It takes no place and leaves none, so a call that is given
up, or lost with its connection, changes nothing, and may be made again.

A store that calls back is answered in the turn of the commit, without a task; on the wire there is no
difference between one answer to a request and a stream of one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from quoracy.faces.etcd.methods import Ahead, Done, Method, Send, Streaming, Unary
from quoracy.faces.etcd.services.header import Headers
from quoracy.store.api import Store
from quoracy.store.completion import Reply
from quoracy.store.legacy import TellsQueues
from quoracy.store.model import Revision
from quoracy.wire.quoracy import WAIT_FIRST, WaitFirstRequest, WaitFirstResponse

__all__ = ["QueueService"]

_GONE = WaitFirstResponse(is_gone=True).encode()


class QueueService:
    def __init__(self, store: Store, headers: Headers) -> None:
        self._store = store
        self._telling = store if isinstance(store, TellsQueues) else None
        self._headers = headers

    def methods(self) -> list[Method]:
        messages = WaitFirstRequest, WaitFirstResponse
        if self._telling is not None:
            return [Unary(WAIT_FIRST, *messages, self._wait, waiting=self._begin)]
        return [Streaming(WAIT_FIRST, *messages, self._stream, client_streams=False)]

    def _begin(self, request: WaitFirstRequest, done: Done, ahead: Ahead | None) -> Callable[[], None]:
        def told(seen: Revision | None, error: BaseException | None) -> None:
            if error is not None:
                done(None, error)
            elif seen is None:
                done(_GONE, None)
            else:
                done(self._headers.encoded(seen), None)  # which is all there is to it

        def make_reply(seen: Revision) -> Reply | None:
            return None if ahead is None else ahead(self._headers.encoded(seen))

        assert self._telling is not None
        return self._telling.when_oldest(request.name, request.key, request.token, told, make_reply)

    async def _stream(
        self, requests: AsyncIterator[WaitFirstRequest], send: Send[WaitFirstResponse]
    ) -> None:
        await send(await self._wait(await anext(requests)))

    async def _wait(self, request: WaitFirstRequest) -> WaitFirstResponse:
        seen = await self._store.wait_first(request.name, request.key, request.token)
        return self._response(seen)

    def _response(self, seen: Revision | None) -> WaitFirstResponse:
        if seen is None:
            return WaitFirstResponse(is_gone=True)
        return WaitFirstResponse(header=self._headers.at(seen))
