"""What a remote procedure is: declared once, served over gRPC and by the JSON gateway alike.

A handler knows messages and the store, and nothing of how a call arrived.  It ends a call in error by
raising: `GrpcError` with the status it wants, or any `QuoracyError`, which `faults.status_of` maps.
A call that its client gave up, or whose deadline passed, is cancelled.

Invariants
    * `path` is the gRPC path, `/package.Service/Method`.
    * A streaming handler's `send` waits while the peer does not read: what a slow client makes us keep
      is bounded.  The stream ends when the handler returns.
    * A streaming handler whose `client_streams` is False reads exactly one request.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from quoracy.store.completion import Reply
from quoracy.wire.protobuf import Message

__all__ = ["Ahead", "Done", "Method", "Send", "Streaming", "Unary", "WithMetadata"]

RequestT = TypeVar("RequestT", bound=Message)
ResponseT = TypeVar("ResponseT", bound=Message)

SentT_contra = TypeVar("SentT_contra", bound=Message, contravariant=True)


class Send(Protocol[SentT_contra]):
    """Sends responses, in order and together, when the peer has taken what was sent before."""

    def __call__(self, *responses: SentT_contra) -> Awaitable[None]: ...


Done: TypeAlias = Callable[[bytes | None, BaseException | None], None]
# Makes a reply of a response, encoded, that is not to be sent yet; or leaves it to `Done`.
Ahead: TypeAlias = Callable[[bytes], Reply | None]


@dataclass(frozen=True, slots=True)
class WithMetadata(Generic[ResponseT]):
    """A response with something to say beside it: metadata in gRPC, HTTP headers at the gateway.

    Names are in lower case, values printable ASCII.
    """

    response: ResponseT
    metadata: tuple[tuple[bytes, bytes], ...]


@dataclass(frozen=True, slots=True)
class Unary(Generic[RequestT, ResponseT]):
    """One request, one response.

    `routes` are the paths the JSON gateway serves it under, such as `/v3/kv/put`.

    `prompt` is a handler that needs no task: it calls back with the response, encoded, or the error,
    once, maybe before it returns.  It returns False, having done nothing, for a request it leaves to
    `handle`.  `quick` is the same for a request that was not decoded; what it leaves goes to `prompt`.
    Either may get an `Ahead`, and pass it to a store that has answers sent (`RepliesAhead`).
    """

    path: str
    request: type[RequestT]
    response: type[ResponseT]
    handle: Callable[[RequestT], Awaitable[ResponseT | WithMetadata[ResponseT]]]
    routes: Sequence[str] = ()
    prompt: Callable[[RequestT, Done, Ahead | None], bool] | None = None
    # For what may take any time: calls back like `prompt`, later, and returns what gives it up.  It is
    # ended at once when the server stops, as a stream is.
    waiting: Callable[[RequestT, Done, Ahead | None], Callable[[], None]] | None = None
    quick: Callable[[bytes, Done, Ahead | None], bool] | None = None
    # Whether a store is told that a write is coming (`RepliesAhead.expect`) before the request is read.
    writes: bool = False


@dataclass(frozen=True, slots=True)
class Streaming(Generic[RequestT, ResponseT]):
    """A stream of responses to one request, or to a stream of them."""

    path: str
    request: type[RequestT]
    response: type[ResponseT]
    handle: Callable[[AsyncIterator[RequestT], Send[ResponseT]], Awaitable[None]]
    client_streams: bool
    routes: Sequence[str] = ()


Method: TypeAlias = Unary[Any, Any] | Streaming[Any, Any]
