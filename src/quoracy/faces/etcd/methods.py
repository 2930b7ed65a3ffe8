"""What a remote procedure is: declared once, served over gRPC and by the JSON gateway alike.

A procedure knows messages and the store, and nothing of how a call arrived.  It ends a call in error by
raising: `GrpcError` with the status it wants, or any `QuoracyError`, which `errors.status_of` maps.

Invariants
    * `path` is the gRPC path, `/package.Service/Method`.
    * A streaming handler's `send` waits while the peer does not read: what is kept for a slow client is
      bounded.  The stream ends when the handler returns; it is cancelled when its client gives up,
      or its deadline passes.
    * A streaming handler whose `client_streams` is False reads exactly one request.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from quoracy.faces.etcd.answer import Answer, Caller, Metadata
from quoracy.store.coroutines import complete_by_task
from quoracy.wire.protobuf import Message

__all__ = ["Method", "Send", "Streaming", "Unary", "answer_of", "awaited"]

RequestT = TypeVar("RequestT", bound=Message)
ResponseT = TypeVar("ResponseT", bound=Message)

SentT_contra = TypeVar("SentT_contra", bound=Message, contravariant=True)


class Send(Protocol[SentT_contra]):
    """Sends responses, in order and together, when the peer has taken what was sent before."""

    def __call__(self, *responses: SentT_contra) -> Awaitable[None]: ...


@dataclass(frozen=True, slots=True)
class Unary:
    """One request, one response.

    begin: takes the encoded request, begins its operation with an `Answer` to the call, and returns
        that.  The answer may be done before `begin` returns.  Raises what is wrong with the request.
    routes: the paths the JSON gateway serves it under, such as `/v3/kv/put`.
    is_wait: whether it is answered when something happens, which may take any time: such a call is
        ended at once when the server stops, and answered in the turn in which that happened.
    """

    path: str
    request: type[Message]
    response: type[Message]
    begin: Callable[[bytes, Caller], Answer]
    routes: Sequence[str] = ()
    is_wait: bool = False


@dataclass(frozen=True, slots=True)
class Streaming(Generic[RequestT, ResponseT]):
    """A stream of responses to one request, or to a stream of them."""

    path: str
    request: type[RequestT]
    response: type[ResponseT]
    handle: Callable[[AsyncIterator[RequestT], Send[ResponseT]], Coroutine[Any, Any, None]]
    client_streams: bool
    routes: Sequence[str] = ()


Method: TypeAlias = Unary | Streaming[Any, Any]


def awaited(
    path: str,
    request: type[RequestT],
    response: type[ResponseT],
    handle: Callable[[RequestT], Coroutine[Any, Any, ResponseT]],
    routes: Sequence[str] = (),
) -> Unary:
    """A unary method whose work is a coroutine: it runs in a task, which is cancelled on `abandon`."""

    def begin(payload: bytes, call: Caller) -> Answer:
        answer = Answer(call, cleans_up=True)
        complete_by_task(handle(request.decode(payload)), answer)
        return answer

    return Unary(path, request, response, begin, routes)


async def answer_of(method: Unary, payload: bytes) -> tuple[bytes, Metadata]:
    """Call a method in this process: its encoded answer.  Raises what it ends with."""
    call = _AwaitedCaller()
    answer = method.begin(payload, call)
    try:
        await asyncio.wait((call.outcome,))
    except asyncio.CancelledError:
        call.is_gone = True
        answer.abandon()
        while answer.cleans_up and not call.outcome.done():
            with contextlib.suppress(asyncio.CancelledError):  # it was, and is raised below
                await asyncio.wait((call.outcome,))
        raise
    return call.outcome.result()


class _AwaitedCaller:
    """A `Caller` that awaits `outcome`, until it is gone."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.outcome: asyncio.Future[tuple[bytes, Metadata]] = loop.create_future()
        self.is_gone = False

    def done(self, answer: Answer, result: Any, error: BaseException | None) -> None:
        if self.is_gone:
            self.outcome.cancel()
        elif error is None:
            self.outcome.set_result((answer.encode(result), answer.metadata(result)))
        else:
            self.outcome.set_exception(error)

    def reply(self, data: bytes) -> None:
        """There is no socket here to send one on."""
