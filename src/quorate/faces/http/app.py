"""The routes of the HTTP face, as an ASGI application over a Store."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from quorate.errors import QuorateError
from quorate.faces.http.health import Health, judge
from quorate.faces.http.host_guard import HostGuard
from quorate.store.api import Store

__all__ = ["make_app"]


def make_app(store: Store, *, bound_host: str) -> Starlette:
    """The application; `bound_host` is the host it will be reached at."""

    async def health(_: Request) -> Response:
        return _health_response(await _examine(store))

    return Starlette(
        routes=[Route("/health", health)],
        middleware=[Middleware(HostGuard, bound_host=bound_host)],
        exception_handlers={HTTPException: _explain},
    )


async def _examine(store: Store) -> Health:
    try:
        return judge(await store.status())
    except QuorateError as error:
        return Health(ok=False, reason=str(error), status=None)


def _health_response(health: Health) -> Response:
    return Response(
        health.to_json(),
        status_code=200 if health.ok else 503,
        media_type="application/json",
        headers={"Cache-Control": "no-store"},
    )


async def _explain(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    # Plain text, and never the path that was asked for: nothing here can be made to render markup.
    return PlainTextResponse(
        f"{error.detail}. GET /health says how this Quorate is doing.\n",
        status_code=error.status_code,
        headers=error.headers,
    )
