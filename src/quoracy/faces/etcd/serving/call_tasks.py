"""Calls that wait: the coroutines of `calls`, which itself has none.

(Modules with coroutines are not compiled, and `calls` is on the way of every request.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from quoracy.wire.protobuf import Message

if TYPE_CHECKING:
    from quoracy.faces.etcd.serving.calls import StreamCall, UnaryCall

__all__ = ["answer", "next_request", "send", "serve"]


async def answer(call: UnaryCall, payload: bytes) -> None:
    """One request, in a task."""
    try:
        response = await call.method.handle(call.method.request.decode(payload))
        # Not encoded yet, it is little more than references to what the store has anyway.
        while (turn := call.host.wait_for_room()) is not None:
            await turn
    except BaseException as error:
        call.fail(error)
        if isinstance(error, Exception):
            return
        raise
    call.send_response(response)


async def serve(call: StreamCall) -> None:
    """A stream of requests, in a task."""
    try:
        await call.method.handle(call, call.send)
    except BaseException as error:
        call.fail(error)
        if isinstance(error, Exception):
            return
        raise
    call.succeeded()


async def next_request(call: StreamCall) -> Message:
    while (request := call.take()) is None:
        if call.is_finished:
            raise StopAsyncIteration
        await call.wait_arrival()
    return request


async def send(call: StreamCall, responses: Sequence[Message]) -> None:
    while call.is_blocked():
        turn = call.wait_turn()
        try:
            await turn
        except BaseException:
            # Whoever is woken and does not send must pass the turn on.
            if turn.done() and not turn.cancelled():
                call.may_send()
            raise
    call.put(responses)
