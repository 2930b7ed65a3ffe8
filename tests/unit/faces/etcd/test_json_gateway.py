"""The gateway over methods made for the test: bodies, errors, streams, and clients that go away."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from quoracy.errors import Compacted, Unavailable
from quoracy.faces.etcd.methods import Method, Send, Streaming, awaited
from quoracy.faces.etcd.serving.calls import CallCounts
from quoracy.faces.etcd.serving.json_gateway import JsonGateway
from quoracy.wire.etcd.rpc import (
    LeaseKeepAliveRequest,
    LeaseKeepAliveResponse,
    PutRequest,
    PutResponse,
    ResponseHeader,
)
from quoracy.wire.grpc import GrpcError, StatusCode
from tests.unit.faces.etcd.asgi_client import ask, exchange

PUT, KEEP = "/etcdserverpb.KV/Put", "/etcdserverpb.Lease/LeaseKeepAlive"


async def put(request: PutRequest) -> PutResponse:
    return PutResponse(header=ResponseHeader(revision=len(request.key)))


async def keep_alive(
    requests: AsyncIterator[LeaseKeepAliveRequest], send: Send[LeaseKeepAliveResponse]
) -> None:
    async for request in requests:
        if request.ID == 13:
            raise GrpcError(StatusCode.NOT_FOUND, "unlucky")
        await send(LeaseKeepAliveResponse(ID=request.ID))


def unary(handle: Any = put) -> Method:
    return awaited(PUT, PutRequest, PutResponse, handle, routes=("/v3/kv/put",))


def streaming(handle: Any = keep_alive, *, client_streams: bool = True) -> Method:
    routes = ("/v3/lease/keepalive", "/v3/kv/lease/keepalive")
    return Streaming(
        KEEP, LeaseKeepAliveRequest, LeaseKeepAliveResponse, handle, client_streams, routes
    )


def gateway(*methods: Method, counts: CallCounts | None = None) -> JsonGateway:
    return JsonGateway(methods, counts or CallCounts(), body_bytes_max=1000)


# -- unary


@pytest.mark.parametrize("prefix", ["/v3", "/v3beta"])
async def test_answer_is_one_object(prefix: str) -> None:
    answer = await ask(gateway(unary()), f"{prefix}/kv/put", b'{"key":"YWJj"}')
    assert (answer.status, answer.body) == (200, b'{"header":{"revision":"3"}}')
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["content-length"] == str(len(answer.body))


async def test_body_may_come_in_pieces() -> None:
    async with exchange(gateway(unary()), "/v3/kv/put") as client:
        client.send(b'{"key":')
        client.send(b'"YWJj"}')
        client.send(b"", more=False)
        assert await client.status() == 200
        assert await client.line() == {"header": {"revision": "3"}}


@pytest.mark.parametrize("path", ["/v3/", "/v3/nonsense", "/v3/kv/put/", "/v3/kv", "/v3beta/"])
async def test_unknown_path_is_404(path: str) -> None:
    answer = await ask(gateway(unary()), path, b"{}")
    assert (answer.status, answer.text) == (404, "Not Found\n")


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "HEAD"])
async def test_only_post_is_served(method: str) -> None:
    answer = await ask(gateway(unary()), "/v3/kv/put", b"{}", method=method)
    assert (answer.status, answer.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (StatusCode.CANCELLED, 408),
        (StatusCode.UNKNOWN, 500),
        (StatusCode.INVALID_ARGUMENT, 400),
        (StatusCode.DEADLINE_EXCEEDED, 504),
        (StatusCode.NOT_FOUND, 404),
        (StatusCode.ALREADY_EXISTS, 409),
        (StatusCode.PERMISSION_DENIED, 403),
        (StatusCode.RESOURCE_EXHAUSTED, 429),
        (StatusCode.FAILED_PRECONDITION, 400),
        (StatusCode.ABORTED, 409),
        (StatusCode.OUT_OF_RANGE, 400),
        (StatusCode.UNIMPLEMENTED, 501),
        (StatusCode.INTERNAL, 500),
        (StatusCode.UNAVAILABLE, 503),
        (StatusCode.DATA_LOSS, 500),
        (StatusCode.UNAUTHENTICATED, 401),
    ],
)
async def test_every_grpc_code_has_its_http_status(code: StatusCode, status: int) -> None:
    async def fail(_: PutRequest) -> PutResponse:
        raise GrpcError(code, "so it is")

    answer = await ask(gateway(unary(fail)), "/v3/kv/put", b"{}")
    assert answer.status == status
    assert answer.json == {"error": "so it is", "code": code.value, "message": "so it is"}


async def test_errors_of_the_store_are_etcds() -> None:
    async def fail(_: PutRequest) -> PutResponse:
        raise Compacted(wanted=1, oldest=5)

    answer = await ask(gateway(unary(fail)), "/v3/kv/put", b"{}")
    assert (answer.status, answer.json["code"]) == (400, 11)
    assert answer.json["message"] == "etcdserver: mvcc: required revision has been compacted"


async def test_bug_in_a_handler_is_logged_and_not_told(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(_: PutRequest) -> PutResponse:
        raise ZeroDivisionError("secret")

    with caplog.at_level(logging.ERROR):
        answer = await ask(gateway(unary(fail)), "/v3/kv/put", b"{}")
    assert (answer.status, answer.json["code"]) == (500, 13)
    assert "secret" not in answer.text
    assert "secret" in caplog.text


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b'{"key":"!"}', b'{"key":NaN}', b"[" * 900, b'{"a":' * 100, b"\xff"]
)
async def test_bad_body_is_400_with_the_reason(body: bytes) -> None:
    answer = await ask(gateway(unary()), "/v3/kv/put", body)
    assert (answer.status, answer.json["code"]) == (400, 3)
    assert answer.json["error"] == answer.json["message"] != ""


async def test_body_over_the_limit_is_refused_before_it_is_read_to_its_end() -> None:
    async with exchange(gateway(unary()), "/v3/kv/put") as client:
        client.send(b'{"key":"' + b"A" * 600)
        client.send(b"A" * 600)
        assert await client.status() == 429
        assert (await client.line())["code"] == 8


# -- streams


async def test_responses_come_while_requests_are_still_sent() -> None:
    async with exchange(gateway(streaming()), "/v3/lease/keepalive") as client:
        client.send(b'{"ID":"1"}')
        assert await client.status() == 200
        assert client.headers["content-type"] == "application/json"
        assert await client.piece() == b'{"result":{"ID":"1"}}\n'
        client.send(b'{"ID":2}\n{"ID"')
        assert await client.line() == {"result": {"ID": "2"}}
        client.send(b":3}", more=False)
        assert await client.line() == {"result": {"ID": "3"}}
        assert await client.piece() == b""


async def test_no_requests_are_answered_by_nothing() -> None:
    answer = await ask(gateway(streaming()), "/v3/lease/keepalive")
    assert (answer.status, answer.body) == (200, b"")


async def test_method_with_one_request_reads_no_other() -> None:
    answer = await ask(
        gateway(streaming(client_streams=False)), "/v3/lease/keepalive", b'{"ID":1}{"ID":2}'
    )
    assert answer.text == '{"result":{"ID":"1"}}\n'


async def test_error_before_any_response_is_a_plain_one() -> None:
    answer = await ask(gateway(streaming()), "/v3/lease/keepalive", b'{"ID":13}')
    assert (answer.status, answer.json) == (404, {"error": "unlucky", "code": 5, "message": "unlucky"})


async def test_error_after_a_response_is_the_last_line() -> None:
    answer = await ask(gateway(streaming()), "/v3/lease/keepalive", b'{"ID":1}{"ID":13}')
    assert answer.status == 200
    first, last = answer.text.split("\n")
    assert json.loads(first) == {"result": {"ID": "1"}}
    assert json.loads(last) == {
        "error": {"grpc_code": 5, "http_code": 404, "message": "unlucky", "http_status": "Not Found"}
    }


@pytest.mark.parametrize("body", [b"{", b'{"ID":"x"}', b"[]", b"x"])
async def test_bad_first_request_is_unknown_as_in_etcd(body: bytes) -> None:
    answer = await ask(gateway(streaming()), "/v3/lease/keepalive", body)
    assert (answer.status, answer.json["code"]) == (500, 2)


async def test_bad_only_request_is_invalid() -> None:
    answer = await ask(gateway(streaming(client_streams=False)), "/v3/lease/keepalive", b"{")
    assert (answer.status, answer.json["code"]) == (400, 3)


@pytest.mark.parametrize("bad", [b'{"ID":"x"}', b"x", b'{"a'])
async def test_bad_later_request_ends_the_stream_with_an_error(bad: bytes) -> None:
    answer = await ask(gateway(streaming()), "/v3/lease/keepalive", b'{"ID":1}' + bad)
    first, last = answer.text.split("\n")
    assert json.loads(first) == {"result": {"ID": "1"}}
    assert json.loads(last)["error"]["grpc_code"] == 3


async def test_stream_of_requests_may_be_longer_than_the_limit_on_one() -> None:
    answer = await ask(gateway(streaming()), "/v3/lease/keepalive", b'{"ID":"7"}' * 500)
    assert answer.text == '{"result":{"ID":"7"}}\n' * 500


async def test_request_over_the_limit_ends_the_stream() -> None:
    answer = await ask(gateway(streaming()), "/v3/lease/keepalive", b'{"x":"' + b"x" * 1000 + b'"}')
    assert (answer.status, answer.json["code"]) == (429, 8)


async def test_handler_waits_for_a_client_that_does_not_read() -> None:
    sent = []

    async def flood(_: Any, send: Send[LeaseKeepAliveResponse]) -> None:
        for number in range(3):
            await send(LeaseKeepAliveResponse(ID=number + 1))
            sent.append(number)

    async with exchange(gateway(streaming(flood)), "/v3/lease/keepalive") as client:
        client.reading.clear()
        client.send(b"{}")
        for _ in range(20):  # as many turns of the loop as anything here could need
            await asyncio.sleep(0)
        assert sent == []
        client.reading.set()
        assert await client.status() == 200
        assert [await client.line() for _ in range(3)][-1] == {"result": {"ID": "3"}}


async def test_requests_nobody_takes_are_not_read_on_forever() -> None:
    taken = asyncio.Event()

    async def idle(requests: Any, _: Any) -> None:
        await taken.wait()
        async for _request in requests:
            pass

    async with exchange(gateway(streaming(idle)), "/v3/lease/keepalive") as client:
        for _ in range(100):
            client.send(b"{}")
        for _ in range(200):
            await asyncio.sleep(0)
        assert client.incoming.qsize() > 50
        client.send(b"", more=False)
        taken.set()
        assert await client.status() == 200


async def test_two_tasks_of_a_handler_may_send_at_once() -> None:
    async def both(_: Any, send: Send[LeaseKeepAliveResponse]) -> None:
        async with asyncio.TaskGroup() as tasks:
            for number in (1, 2):
                tasks.create_task(send_one(send, number))

    async def send_one(send: Send[LeaseKeepAliveResponse], number: int) -> None:
        await send(LeaseKeepAliveResponse(ID=number))

    answer = await ask(gateway(streaming(both)), "/v3/lease/keepalive", b"{}")
    assert answer.text == '{"result":{"ID":"1"}}\n{"result":{"ID":"2"}}\n'


# -- clients that go away


@pytest.mark.parametrize("kind", ["unary", "client stream", "server stream"])
async def test_client_that_goes_away_cancels_its_handler(kind: str) -> None:
    entered, left = asyncio.Event(), asyncio.Event()

    async def wait(*_: Any) -> Any:
        entered.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            left.set()

    counts = CallCounts()
    method = unary(wait) if kind == "unary" else streaming(wait, client_streams=kind == "client stream")
    async with exchange(gateway(method, counts=counts), method.routes[0]) as client:
        client.send(b"{}", more=kind == "client stream")
        await entered.wait()
        client.disconnect()
        await left.wait()
    assert client.outgoing.empty()
    assert counts.of(method.path) == (1, {StatusCode.CANCELLED: 1})


async def test_client_that_goes_away_before_it_has_asked_reaches_nothing() -> None:
    async with exchange(gateway(unary()), "/v3/kv/put") as client:
        client.send(b'{"key":')
    assert client.outgoing.empty()


# -- counting


async def test_calls_are_counted_by_how_they_ended() -> None:
    counts = CallCounts()

    async def fail(_: PutRequest) -> PutResponse:
        raise Unavailable("not today")

    await ask(gateway(unary(), counts=counts), "/v3/kv/put", b"{}")
    await ask(gateway(unary(), counts=counts), "/v3/kv/put", b"{")
    await ask(gateway(unary(fail), counts=counts), "/v3/kv/put", b"{}")
    await ask(gateway(unary(), counts=counts), "/v3/nonsense", b"{}")
    started, ended = counts.of(PUT)
    assert started == 3
    assert ended == {StatusCode.OK: 1, StatusCode.INVALID_ARGUMENT: 1, StatusCode.UNAVAILABLE: 1}
