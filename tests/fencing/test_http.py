"""The middleware, through httpx and behind a real server."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from quoracy.errors import DataUnreadable, InvalidRequest, Unavailable
from quoracy.fencing import (
    TOKEN_MAX,
    Fence,
    FencingMiddleware,
    Gate,
    MemoryGate,
    fence_of,
    fencing_header,
)

Scope = MutableMapping[str, object]
Receive = Callable[[], Awaitable[MutableMapping[str, object]]]
Send = Callable[[MutableMapping[str, object]], Awaitable[None]]


class App:
    """Answers 200 to everything, and keeps what it was asked."""

    def __init__(self) -> None:
        self.scopes: list[Scope] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scopes.append(scope)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})

    @property
    def fences(self) -> list[Fence | None]:
        return [fence_of(scope) for scope in self.scopes]


@pytest.fixture
def app() -> App:
    return App()


@asynccontextmanager
async def client_of(app: FencingMiddleware) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app=app), base_url="http://orders.example"
    ) as client:
        yield client


async def test_stale_token_gets_409_and_never_reaches_the_application(app: App) -> None:
    async with client_of(FencingMiddleware(app, MemoryGate())) as client:
        assert (await client.put("/orders/7", headers=fencing_header(5))).status_code == 200
        refused = await client.put("/orders/7", headers=fencing_header(4))
        assert (await client.put("/orders/7", headers=fencing_header(5))).status_code == 200
    assert refused.status_code == 409
    assert refused.headers["content-type"] == "application/problem+json"
    assert int(refused.headers["content-length"]) == len(refused.content)
    problem = refused.json()
    assert problem.pop("detail").startswith("the fencing token 4 for '/orders/7' is stale")
    assert problem == {
        "status": 409,
        "title": "Stale fencing token",
        "resource": "/orders/7",
        "token": 4,
        "highest": 5,
    }
    assert app.fences == [Fence("/orders/7", 5), Fence("/orders/7", 5)]


async def test_each_path_is_a_resource_by_default(app: App) -> None:
    async with client_of(FencingMiddleware(app, MemoryGate())) as client:
        assert (await client.put("/orders/7", headers=fencing_header(5))).status_code == 200
        assert (await client.put("/orders/8", headers=fencing_header(4))).status_code == 200
        assert (await client.put("/orders/8?x=1", headers=fencing_header(3))).status_code == 409


async def test_resource_may_be_one_name_for_everything(app: App) -> None:
    async with client_of(FencingMiddleware(app, MemoryGate(), resource="orders")) as client:
        assert (await client.put("/orders/7", headers=fencing_header(5))).status_code == 200
        assert (await client.put("/orders/8", headers=fencing_header(4))).status_code == 409


async def test_resource_may_be_chosen_by_a_function_and_none_is_not_guarded(app: App) -> None:
    def tenant(scope: Scope) -> str | None:
        first = str(scope["path"]).split("/")[1]
        return None if first == "public" else first

    async with client_of(FencingMiddleware(app, MemoryGate(), resource=tenant)) as client:
        assert (await client.put("/a/1", headers=fencing_header(5))).status_code == 200
        assert (await client.put("/a/2", headers=fencing_header(4))).status_code == 409
        assert (await client.put("/b/2", headers=fencing_header(4))).status_code == 200
        assert (await client.put("/public/1")).status_code == 200
        assert (await client.put("/public/1", headers=fencing_header(1))).status_code == 200
    assert app.fences == [Fence("a", 5), Fence("b", 4), None, None]


@pytest.mark.parametrize(
    "text",
    ["", "x", "-1", "+1", "1.0", "5, 6", "1_0", "0x5", "\u0665", str(TOKEN_MAX + 1), "9" * 5_000],
)
async def test_what_is_no_token_gets_400_and_changes_nothing(app: App, text: str) -> None:
    async with client_of(FencingMiddleware(app, MemoryGate())) as client:
        refused = await client.put("/", headers={b"fencing-token": text.encode()})
        assert (refused.status_code, refused.json()["title"]) == (400, "Malformed fencing token")
        assert app.scopes == []
        assert (await client.put("/", headers=fencing_header(0))).status_code == 200


async def test_two_tokens_in_one_request_get_400(app: App) -> None:
    async with client_of(FencingMiddleware(app, MemoryGate())) as client:
        twice = [("Fencing-Token", "5"), ("fencing-token", "5")]
        assert (await client.put("/", headers=twice)).status_code == 400
    assert app.scopes == []


@pytest.mark.parametrize("text", ["7", " 7\t", "0007"])
async def test_token_is_read_as_http_allows_it_to_be_written(app: App, text: str) -> None:
    async with client_of(FencingMiddleware(app, MemoryGate())) as client:
        assert (await client.put("/", headers={"FENCING-TOKEN": text})).status_code == 200
    assert app.fences == [Fence("/", 7)]


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "PURGE"])
async def test_change_without_a_token_gets_428(app: App, method: str) -> None:
    async with client_of(FencingMiddleware(app, MemoryGate())) as client:
        refused = await client.request(method, "/")
    assert (refused.status_code, refused.json()["title"]) == (428, "Fencing token required")
    assert app.scopes == []


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
async def test_request_that_changes_nothing_needs_no_token_but_may_not_have_a_stale_one(
    app: App, method: str
) -> None:
    async with client_of(FencingMiddleware(app, MemoryGate())) as client:
        assert (await client.request(method, "/")).status_code == 200
        assert (await client.request(method, "/", headers=fencing_header(5))).status_code == 200
        assert (await client.request(method, "/", headers=fencing_header(4))).status_code == 409


async def test_change_without_a_token_passes_where_none_is_required(app: App) -> None:
    async with client_of(FencingMiddleware(app, MemoryGate(), required=False)) as client:
        assert (await client.put("/", headers=fencing_header(5))).status_code == 200
        assert (await client.put("/")).status_code == 200
        assert (await client.put("/", headers=fencing_header(4))).status_code == 409


async def test_header_may_have_another_name(app: App) -> None:
    async with client_of(FencingMiddleware(app, MemoryGate(), header="X-Epoch")) as client:
        assert (await client.put("/", headers=fencing_header(5, name="X-Epoch"))).status_code == 200
        assert (await client.put("/", headers={"x-epoch": "4"})).status_code == 409
        missing = await client.put("/", headers=fencing_header(6))
    assert missing.status_code == 428
    assert "X-Epoch" in missing.json()["detail"]


def test_header_is_made_of_tokens_only() -> None:
    assert fencing_header(TOKEN_MAX) == {"Fencing-Token": str(TOKEN_MAX)}
    with pytest.raises(InvalidRequest):
        fencing_header(-1)


class Broken:
    """A gate that answers with the error it was made with."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def admit(self, resource: str, token: int) -> None:
        raise self._error


@pytest.mark.parametrize(
    ("gate", "status"),
    [(Broken(Unavailable("not now")), 503), (MemoryGate(resources_max=0), 503)],
    ids=["unavailable", "full"],
)
async def test_gate_that_cannot_answer_lets_nothing_through(app: App, gate: Gate, status: int) -> None:
    async with client_of(FencingMiddleware(app, gate)) as client:
        assert (await client.put("/", headers=fencing_header(5))).status_code == status
    assert app.scopes == []


async def test_error_of_the_gate_is_not_taken_for_an_admission(app: App) -> None:
    async with client_of(FencingMiddleware(app, Broken(DataUnreadable("damaged")))) as client:
        with pytest.raises(DataUnreadable):
            await client.put("/", headers=fencing_header(5))
    assert app.scopes == []


async def test_path_that_cannot_be_a_resource_gets_400(app: App) -> None:
    async with client_of(FencingMiddleware(app, MemoryGate())) as client:
        refused = await client.put("/" + "x" * 2_000, headers=fencing_header(5))
    assert (refused.status_code, refused.json()["title"]) == (400, "Resource cannot be fenced")
    assert app.scopes == []


@pytest.mark.parametrize("kind", ["lifespan", "websocket"])
async def test_whatever_is_not_http_passes_untouched(app: App, kind: str) -> None:
    async def receive() -> MutableMapping[str, object]:
        return {}

    async def send(message: MutableMapping[str, object]) -> None:
        return

    scope: Scope = {"type": kind}
    await FencingMiddleware(app, MemoryGate())(scope, receive, send)
    assert app.scopes[0] is scope


async def test_scope_of_the_caller_is_left_as_it_was(app: App) -> None:
    async def receive() -> MutableMapping[str, object]:
        return {}

    async def send(message: MutableMapping[str, object]) -> None:
        return

    scope: Scope = {
        "type": "http",
        "method": "PUT",
        "path": "/",
        "headers": [(b"fencing-token", b"5")],
    }
    before = dict(scope)
    await FencingMiddleware(app, MemoryGate())(scope, receive, send)
    assert scope == before
    assert app.fences == [Fence("/", 5)]


SERVED = """
from quoracy.fencing import FencingMiddleware, SqliteGate, fence_of

async def orders(scope, receive, send):
    assert scope["type"] == "http"
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"token %d" % fence_of(scope).token})

app = FencingMiddleware(orders, SqliteGate("fencing.db"))
"""


@pytest.mark.skipif(importlib.util.find_spec("uvicorn") is None, reason="uvicorn is not installed")
def test_behind_a_real_server_a_stale_write_with_a_large_body_is_refused(tmp_path: Path) -> None:
    (tmp_path / "served.py").write_text(SERVED)
    process = subprocess.Popen(
        [sys.executable, "-m", "uvicorn", "served:app", "--port", "0", "--lifespan", "off"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        said = ""
        while not (found := re.search(r"http://127\.0\.0\.1:\d+", said)):
            line = process.stderr.readline()
            assert line, said
            said += line
        with httpx.Client(base_url=found[0], timeout=30, trust_env=False) as client:
            body = b"x" * 1_000_000
            admitted = client.put("/orders", content=body, headers=fencing_header(5))
            assert (admitted.status_code, admitted.content) == (200, b"token 5")
            for _ in range(2):
                refused = client.put("/orders", content=body, headers=fencing_header(4))
                assert (refused.status_code, refused.json()["highest"]) == (409, 5)
            assert client.put("/orders", headers=fencing_header(6)).content == b"token 6"
    finally:
        process.terminate()
        process.communicate(timeout=30)
