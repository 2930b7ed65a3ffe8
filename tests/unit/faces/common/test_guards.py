"""The host guard around an application that must not be reached; `faces/http` tests the names."""

from __future__ import annotations

from typing import Any

import pytest

from quoracy.faces.common.guards import HostGuard


@pytest.mark.parametrize(
    ("kind", "answer"),
    [
        ("http", {"type": "http.response.start", "status": 421}),
        ("websocket", {"type": "websocket.close"}),
    ],
)
async def test_request_for_a_foreign_name_reaches_nothing(kind: str, answer: dict[str, Any]) -> None:
    sent: list[Any] = []

    async def application(*_: Any) -> None:
        pytest.fail("it was let in")

    async def receive() -> dict[str, Any]:
        pytest.fail("nothing has to be read to refuse")

    async def send(message: Any) -> None:
        sent.append(message)

    guard = HostGuard(application, bound_host="localhost")
    await guard({"type": kind, "headers": [(b"host", b"evil.example")]}, receive, send)
    assert answer.items() <= sent[0].items()


async def test_other_scopes_pass() -> None:
    reached = []

    async def application(scope: Any, *_: Any) -> None:
        reached.append(scope["type"])

    async def unused(*_: Any) -> Any:
        pytest.fail("there is nothing to say")

    await HostGuard(application, bound_host="localhost")({"type": "lifespan"}, unused, unused)
    assert reached == ["lifespan"]
