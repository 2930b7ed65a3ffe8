"""Quorate's own Queue service: wait for the front of a queue of `store.contention`, and nothing else.

What a client would do itself with a watch and a read, done next to the store: who is next hears of it
one message after the release, not three.  It takes no place and leaves none, so a call that is given
up, or lost with its connection, changes nothing, and may be made again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from quorate.faces.etcd.header import Headers
from quorate.faces.etcd.methods import Method, Send, Streaming
from quorate.store import contention
from quorate.store.api import Store
from quorate.wire.quorate import WAIT_FIRST, WaitFirstRequest, WaitFirstResponse

__all__ = ["QueueService"]


class QueueService:
    def __init__(self, store: Store, headers: Headers) -> None:
        self._store = store
        self._headers = headers

    def methods(self) -> list[Method]:
        return [
            Streaming(
                WAIT_FIRST, WaitFirstRequest, WaitFirstResponse, self.wait_first, client_streams=False
            )
        ]

    async def wait_first(
        self, requests: AsyncIterator[WaitFirstRequest], send: Send[WaitFirstResponse]
    ) -> None:
        request = await anext(requests)
        seen = await contention.wait_oldest(self._store, request.name, request.key, request.token)
        if seen is None:
            await send(WaitFirstResponse(header=await self._headers.now(), is_gone=True))
        else:
            await send(WaitFirstResponse(header=self._headers.at(seen)))
