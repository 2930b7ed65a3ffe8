"""The routes of the HTTP face, as an ASGI application over a Store."""

from __future__ import annotations

from quoracy.errors import QuoracyError, Unavailable
from quoracy.faces.common.asgi import AsgiApp, Receive, Scope, Send, reply, reply_text
from quoracy.faces.common.host_guard import HostGuard
from quoracy.faces.http.health import Health, judge
from quoracy.store.api import Store
from quoracy.store.legacy import OnCluster

__all__ = ["make_app"]

_WHERE_TO_LOOK = "GET /health says how this Quoracy is doing."


def make_app(store: Store, *, bound_host: str) -> AsgiApp:
    """The application; `bound_host` is the host it will be reached at."""

    async def app(scope: Scope, _: Receive, send: Send) -> None:
        # Plain text, and never the path that was asked for: nothing here can be made to render markup.
        if scope["path"] != "/health":
            await reply_text(send, 404, f"Not Found. {_WHERE_TO_LOOK}\n")
        elif scope["method"] not in ("GET", "HEAD"):
            await reply_text(send, 405, f"Method Not Allowed. {_WHERE_TO_LOOK}\n", allow="GET, HEAD")
        else:
            health = await _examine(store)
            status = 200 if health.ok else 503
            await reply(send, status, health.to_json(), content_type=b"application/json")

    return HostGuard(app, bound_host=bound_host)


async def _examine(store: Store) -> Health:
    cluster = store.health() if isinstance(store, OnCluster) else None
    try:
        return judge(await store.status(), cluster)
    except Unavailable as error:
        if cluster is not None and not cluster.is_serving:
            return judge(None, cluster)
        return Health(ok=False, reason=str(error), status=None, cluster=cluster)
    except QuoracyError as error:
        return Health(ok=False, reason=str(error), status=None)
