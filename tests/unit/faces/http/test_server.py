"""The HTTP face over a store that says what it is told to: verdicts, hosts, unknown paths."""

from __future__ import annotations

import json
from typing import Any, cast

import msgspec
import pytest

from quoracy.errors import StoreClosed
from quoracy.faces.common.guards import is_loopback
from quoracy.faces.http.server import make_app
from quoracy.store.api import Store
from quoracy.store.model import Alarm, Revision, StoreStatus
from tests.support.cluster_store import open_cluster_store
from tests.unit.faces.etcd.asgi_client import ask

WELL = StoreStatus(
    engine="memory",
    revision=Revision(7),
    compact_revision=2,
    keys_count=3,
    leases_count=1,
    watchers_count=0,
    size_bytes=640,
    size_bytes_max=1000,
)


class FakeStore:
    """Only as much of a store as health asks for."""

    cluster = None

    def __init__(self, status: StoreStatus | Exception) -> None:
        self._status = status

    async def status(self) -> StoreStatus:
        if isinstance(self._status, Exception):
            raise self._status
        return self._status


async def get(
    path: str = "/health",
    *,
    status: StoreStatus | Exception = WELL,
    bound_host: str = "127.0.0.1",
    host: str | None = "localhost:7070",
    method: str = "GET",
) -> tuple[int, str]:
    """Ask the application as a server would, without one."""
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": b"",
        "headers": [] if host is None else [(b"host", host.encode("latin-1"))],
    }
    app = make_app(cast(Store, FakeStore(status)), bound_host=bound_host)
    await app(scope, receive, send)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:]).decode()


async def test_healthy_store_is_200_with_its_status() -> None:
    code, body = await get()
    assert code == 200
    assert json.loads(body) == {
        "health": "true",
        "reason": "",
        "engine": "memory",
        "revision": 7,
        "compact_revision": 2,
        "keys_count": 3,
        "leases_count": 1,
        "watchers_count": 0,
        "size_bytes": 640,
        "size_bytes_max": 1000,
        "alarms": [],
    }


@pytest.mark.parametrize("alarm", Alarm)
async def test_every_alarm_is_503_with_a_reason(alarm: Alarm) -> None:
    code, body = await get(status=msgspec.structs.replace(WELL, alarms=frozenset({alarm})))
    health = json.loads(body)
    assert (code, health["health"], health["alarms"]) == (503, "false", [alarm.value])
    assert health["reason"]


async def test_store_that_cannot_answer_is_503_with_its_reason() -> None:
    code, body = await get(status=StoreClosed())
    assert code == 503
    assert json.loads(body) == {"health": "false", "reason": str(StoreClosed())}


async def test_unknown_path_is_told_where_to_look_and_never_echoed() -> None:
    code, body = await get("/<script>")
    assert code == 404
    assert "/health" in body
    assert "script" not in body


async def test_health_cannot_be_written() -> None:
    assert (await get(method="POST"))[0] == 405


LOOPBACK = ["localhost", "LOCALHOST:7070", "127.0.0.1:7070", "127.8.9.1", "[::1]:7070", "db.localhost"]
FOREIGN = [
    "evil.example",
    "evil.example:7070",
    "localhost.evil.example",
    "10.0.0.1",
    "",
    "127.0.0.1.evil.example",
]


@pytest.mark.parametrize("host", LOOPBACK)
async def test_loopback_server_answers_loopback_names(host: str) -> None:
    assert (await get(host=host))[0] == 200


@pytest.mark.parametrize("host", FOREIGN)
async def test_loopback_server_refuses_names_a_web_page_could_have(host: str) -> None:
    assert (await get(host=host))[0] == 421


async def test_loopback_server_answers_probes_that_name_no_host() -> None:
    assert (await get(host=None))[0] == 200


@pytest.mark.parametrize("host", [*LOOPBACK, *FOREIGN])
async def test_server_on_a_network_answers_every_name(host: str) -> None:
    assert (await get(host=host, bound_host="0.0.0.0"))[0] == 200


def test_only_names_that_cannot_leave_the_machine_are_loopback() -> None:
    assert is_loopback("::1")
    assert is_loopback("localhost.")
    assert not is_loopback("::")
    assert not is_loopback("0.0.0.0")


async def test_node_that_lost_its_cluster_is_503_and_says_how_it_is() -> None:
    async with open_cluster_store() as store:
        app = make_app(store, bound_host="127.0.0.1")
        well = await ask(app, "/health", method="GET")
        assert (well.status, well.json["cluster"]["leader"]) == (200, "m1")
        store.lose_cluster("no member answers", stale_s=2.5)
        lost = await ask(app, "/health", method="GET")
    assert (lost.status, lost.json["health"]) == (503, "false")
    assert lost.json["reason"].endswith("reads are taken: no member answers")
    assert lost.json["cluster"]["stale_s"] == 2.5
