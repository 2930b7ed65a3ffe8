"""The JSON gateway: every method's `routes`, served as etcd 3.5's grpc-gateway does.

A unary call is one object there and one back.  A stream is a line `{"result": ...}` for each response;
its requests, if it takes several, are objects one after another, answered while more are being sent.
A call that wants a leader says so with `Grpc-Metadata-hasleader: true`, as grpc-gateway has it.
Errors are `{"error": ..., "code": ..., "message": ...}` with the HTTP status the gRPC code maps to;
once a stream has begun, its error is a last line `{"error": {"grpc_code": ...}}`.

Invariants
    * A request is read up to `body_bytes_max` and each object of a stream of them likewise; larger is
      answered RESOURCE_EXHAUSTED.  Of a stream's requests at most `_REQUESTS_WAITING_MAX` wait for the
      handler; past that the body is not read on.
    * A client that goes away cancels its call.
    * A response waits until the server took the one before it, whichever task of the handler sends it.

Differs from etcd 3.5
    * No CORS headers: `faces.common` decides which pages may call.
    * A bad object in the middle of a stream of requests ends it with an error; etcd takes it, silently,
      for the end of the requests.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from http import HTTPStatus
from typing import Any, TypeAlias, TypeVar

import msgspec

from quoracy.errors import ProtocolError, QuoracyError
from quoracy.faces.common.asgi import Receive, Scope, Send, reply, reply_text
from quoracy.faces.etcd.answer import Metadata
from quoracy.faces.etcd.errors import status_of
from quoracy.faces.etcd.methods import Method, Streaming, Unary, answer_of
from quoracy.faces.etcd.serving.calls import CallCounts
from quoracy.faces.etcd.serving.json_codec import (
    ObjectSplitter,
    decode_first_json,
    decode_json,
    encode_json,
    too_large,
)
from quoracy.faces.etcd.serving.leadership import WANTS_LEADER
from quoracy.wire.grpc import GrpcError, StatusCode
from quoracy.wire.protobuf import Message

__all__ = ["PREFIXES", "JsonGateway"]

logger = logging.getLogger(__name__)

# 3.4's name for the same is understood, as 3.5 does.
PREFIXES = ("/v3/", "/v3beta/")

_REQUESTS_WAITING_MAX = 16
# grpc-gateway's way to say metadata in a header.
_WANTS_LEADER = (b"grpc-metadata-" + WANTS_LEADER[0], WANTS_LEADER[1])

_Status: TypeAlias = tuple[StatusCode, str]
_Result = TypeVar("_Result")

_HTTP_STATUS = {
    StatusCode.OK: 200,
    StatusCode.CANCELLED: 408,
    StatusCode.UNKNOWN: 500,
    StatusCode.INVALID_ARGUMENT: 400,
    StatusCode.DEADLINE_EXCEEDED: 504,
    StatusCode.NOT_FOUND: 404,
    StatusCode.ALREADY_EXISTS: 409,
    StatusCode.PERMISSION_DENIED: 403,
    StatusCode.RESOURCE_EXHAUSTED: 429,
    StatusCode.FAILED_PRECONDITION: 400,
    StatusCode.ABORTED: 409,
    StatusCode.OUT_OF_RANGE: 400,
    StatusCode.UNIMPLEMENTED: 501,
    StatusCode.INTERNAL: 500,
    StatusCode.UNAVAILABLE: 503,
    StatusCode.DATA_LOSS: 500,
    StatusCode.UNAUTHENTICATED: 401,
}


class JsonGateway:
    """The part of the HTTP application under `PREFIXES`."""

    def __init__(
        self,
        methods: Iterable[Method],
        counts: CallCounts,
        *,
        body_bytes_max: int,
        guarded_methods: Iterable[Method] | None = None,
    ) -> None:
        self._routes = _routes(methods)
        self._guarded = self._routes if guarded_methods is None else _routes(guarded_methods)
        self._counts = counts
        self._body_bytes_max = body_bytes_max

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        if path.startswith("/v3beta/"):
            path = f"/v3/{path.removeprefix('/v3beta/')}"
        wants_leader = _WANTS_LEADER in scope["headers"]
        method = (self._guarded if wants_leader else self._routes).get(path)
        if method is None:
            await reply_text(send, 404, "Not Found\n")
        elif scope["method"] != "POST":
            await reply_text(send, 405, "Method Not Allowed\n", allow="POST")
        else:
            self._counts.started(method.path)
            code = StatusCode.CANCELLED
            try:
                if isinstance(method, Unary):
                    code = await self._serve_unary(method, receive, send)
                else:
                    code = await self._serve_stream(method, receive, send)
            finally:
                self._counts.handled(method.path, code)

    async def _serve_unary(self, method: Unary, receive: Receive, send: Send) -> StatusCode:
        try:
            request = decode_first_json(method.request, await self._read_body(receive))
        except _ClientGone:
            return StatusCode.CANCELLED
        except (ProtocolError, GrpcError) as error:
            return await _reply_error(send, _status_of(error))

        async def call() -> _Json:
            data, headers = await answer_of(method, request.encode())
            return _Json(encode_json(method.response, method.response.decode(data)), headers)

        answer = await _while_connected(receive, _outcome(call(), method.path))
        if answer is None:
            return StatusCode.CANCELLED
        if isinstance(answer, _Json):
            await reply(send, 200, answer.body, content_type=b"application/json", more=answer.headers)
            return StatusCode.OK
        return await _reply_error(send, answer)

    async def _serve_stream(
        self, method: Streaming[Any, Any], receive: Receive, send: Send
    ) -> StatusCode:
        requests = _Requests(method.request, self._body_bytes_max)
        responses = _Responses(method.response, send)
        if not method.client_streams:
            try:
                requests.only(decode_first_json(method.request, await self._read_body(receive)))
            except _ClientGone:
                return StatusCode.CANCELLED
            except (ProtocolError, GrpcError) as error:
                return await _reply_error(send, _status_of(error))

        async def call() -> _Status:
            try:
                await requests.wait_first()
            except ProtocolError as error:
                # etcd's word for a first request it cannot read; when there is only one, it knows.
                return StatusCode.UNKNOWN, str(error)
            await method.handle(requests, responses.send)
            return StatusCode.OK, ""

        status = await _while_connected(receive, _outcome(call(), method.path), requests)
        if status is None:
            return StatusCode.CANCELLED
        await responses.end(status)
        return status[0]

    async def _read_body(self, receive: Receive) -> bytes:
        pieces, size, more = [], 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _ClientGone
            piece = message.get("body", b"")
            size += len(piece)
            if size > self._body_bytes_max:
                raise too_large(self._body_bytes_max)
            pieces.append(piece)
            more = message.get("more_body", False)
        return b"".join(pieces)


def _routes(methods: Iterable[Method]) -> dict[str, Method]:
    return {route: method for method in methods for route in method.routes}


class _Json(msgspec.Struct, frozen=True):
    """An answer, and the headers that go with it."""

    body: bytes
    headers: Metadata = ()


class _ClientGone(Exception):
    """There is nobody to answer."""


class _Requests:
    """The requests of a stream: an iterator, fed with the body as it arrives."""

    def __init__(self, cls: type[Message], size_max: int) -> None:
        self._cls = cls
        self._splitter = ObjectSplitter(size_max)
        self._waiting: asyncio.Queue[Message | QuoracyError | None] = asyncio.Queue(
            _REQUESTS_WAITING_MAX
        )
        self._first: Message | None = None
        self._fed = False  # to the end: nothing more goes in
        self._finished = False  # nothing more comes out

    def only(self, request: Message) -> None:
        """There is this request and no other."""
        self._first, self._fed, self._finished = request, True, True

    async def feed(self, piece: bytes, *, more: bool) -> None:
        """Take what arrived; what comes after the end, or after something wrong, is ignored."""
        if self._fed:
            return
        try:
            for text in self._splitter.feed(piece):
                await self._waiting.put(decode_json(self._cls, text))
            if not more:
                self._splitter.finish()
                self._fed = True
                await self._waiting.put(None)
        except (ProtocolError, GrpcError) as error:
            self._fed = True
            await self._waiting.put(error)

    async def wait_first(self) -> None:
        """Wait until there is a request, or the end of them; raises if it cannot be read."""
        if self._first is None:
            self._first = await anext(self, None)

    def __aiter__(self) -> _Requests:
        return self

    async def __anext__(self) -> Message:
        if self._first is not None:
            first, self._first = self._first, None
            return first
        if self._finished:
            raise StopAsyncIteration
        found = await self._waiting.get()
        if found is None or isinstance(found, QuoracyError):
            self._finished = True
            raise found or StopAsyncIteration
        return found


class _Responses:
    """The lines of a stream's answer."""

    def __init__(self, cls: type[Message], send: Send) -> None:
        self._cls, self._send = cls, send
        self._started = False
        self._turn = asyncio.Lock()

    async def send(self, *responses: Message) -> None:
        """Waits while the client does not read."""
        lines = [b'{"result":%b}\n' % encode_json(self._cls, each) for each in responses]
        async with self._turn:
            await self._start()
            await self._send({"type": "http.response.body", "body": b"".join(lines), "more_body": True})

    async def end(self, status: _Status) -> None:
        code, message = status
        if code is StatusCode.OK:
            await self._start()
            await self._send({"type": "http.response.body", "body": b""})
        elif not self._started:
            await _reply_error(self._send, status)
        else:
            http_code = _HTTP_STATUS[code]
            error = {
                "grpc_code": code.value,
                "http_code": http_code,
                "message": message,
                "http_status": HTTPStatus(http_code).phrase,
            }
            await self._send(
                {"type": "http.response.body", "body": msgspec.json.encode({"error": error})}
            )

    async def _start(self) -> None:
        if not self._started:
            self._started = True
            headers = [(b"content-type", b"application/json")]
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})


async def _while_connected(
    receive: Receive, work: Coroutine[Any, Any, _Result], requests: _Requests | None = None
) -> _Result | None:
    """Do the work while feeding it what arrives; if the client goes away, cancel it and give None."""
    working = asyncio.create_task(work)
    listening = asyncio.create_task(_listen(receive, requests))
    try:
        await asyncio.wait((working, listening), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        listening.result()
        return None
    finally:
        working.cancel()
        listening.cancel()
        await asyncio.wait((working, listening))


async def _listen(receive: Receive, requests: _Requests | None) -> None:
    """Returns when the client is gone."""
    while (message := await receive())["type"] != "http.disconnect":
        if requests is not None:
            await requests.feed(message.get("body", b""), more=message.get("more_body", False))


async def _reply_error(send: Send, status: _Status) -> StatusCode:
    code, message = status
    body = msgspec.json.encode({"error": message, "code": code.value, "message": message})
    await reply(send, _HTTP_STATUS[code], body, content_type=b"application/json")
    return code


async def _outcome(call: Coroutine[Any, Any, _Result], path: str) -> _Result | _Status:
    """What a call gives, or the status that its error means."""
    try:
        return await call
    except QuoracyError as error:
        return _status_of(error)
    except Exception as error:
        logger.error("%s failed", path, exc_info=error)
        return StatusCode.INTERNAL, "an unexpected error; the server's log has it"


def _status_of(error: QuoracyError) -> _Status:
    match error:
        case GrpcError():
            return error.code, error.message
        case ProtocolError():
            return StatusCode.INVALID_ARGUMENT, str(error)
        case _:
            return status_of(error)
