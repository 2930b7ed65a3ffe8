"""All that the etcd face serves besides gRPC: the JSON gateway, health, version and metrics.

    /v3/...             the JSON gateway (`json_gateway.py`)
    /health             {"health":"true","reason":""}, for probes that know etcd
    /livez, /readyz     `ok`, or which check failed; ?verbose lists them, ?exclude= leaves one out,
                        /readyz/serializable_read runs one
    /version, /metrics

A client that reaches this can read and write everything, so web pages must not: a page that
resolves its name to a loopback address is stopped by its Host header (`HostGuard`), a page of any
other origin by its Origin header (`OriginGuard`).  Differs from etcd, which allows both unless
configured otherwise.

Invariants
    * A check ends: a store that does not answer within `CHECK_S_MAX` is not well.
    * No answer but the gateway's repeats anything a client sent.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import parse_qs

import msgspec

from quoracy.errors import QuoracyError, Unavailable
from quoracy.faces.common.asgi import AsgiApp, Receive, Scope, Send, header_values, reply, reply_text
from quoracy.faces.common.guards import HostGuard, OriginGuard
from quoracy.faces.etcd.methods import Method
from quoracy.faces.etcd.services.member import CLUSTER_VERSION, ETCD_VERSION
from quoracy.faces.etcd.serving.calls import CallCounts
from quoracy.faces.etcd.serving.json_gateway import PREFIXES, JsonGateway
from quoracy.store.api import Store
from quoracy.store.model import Alarm, ClusterHealth, StoreStatus

if TYPE_CHECKING:
    from quoracy.faces.etcd.serving.metrics import Metrics

__all__ = ["make_http_app"]

CHECK_S_MAX = 5.0
MESSAGE_BYTES_MAX = 2 * 1024 * 1024

_JSON = b"application/json"
# Reading one key shows that reads work as well as reading many.
_PROBE_KEY = b"\0"

# Says what is wrong, or nothing.
_Check: TypeAlias = Callable[[], Awaitable[str | None]]
_Query: TypeAlias = Mapping[str, list[str]]


def make_http_app(
    methods: Mapping[str, Method],
    store: Store,
    *,
    host: str,
    counts: CallCounts,
    message_bytes_max: int = MESSAGE_BYTES_MAX,
    guarded_methods: Mapping[str, Method] | None = None,
) -> AsgiApp:
    """The application; `host` is the one that the server was configured to listen on.

    A body may be as long as a message of `message_bytes_max` becomes in base64, and a little longer.
    `guarded_methods` are the same methods for calls that want a leader.
    """
    app = _HttpApp(
        store,
        JsonGateway(
            methods.values(),
            counts,
            body_bytes_max=message_bytes_max * 4 // 3 + 4096,
            guarded_methods=(guarded_methods or methods).values(),
        ),
        _metrics_of(methods, counts),
    )
    return HostGuard(OriginGuard(app), bound_host=host)


def _metrics_of(methods: Mapping[str, Method], counts: CallCounts) -> Callable[[], Awaitable[Metrics]]:
    """The metrics, made when they are first asked for.

    The library is large and slow to load: not every server is scraped, and those that are need not
    stand still for it.
    """
    made: list[Metrics] = []

    async def metrics() -> Metrics:
        if not made:
            module = await asyncio.to_thread(
                importlib.import_module, "quoracy.faces.etcd.serving.metrics"
            )
            made.append(module.Metrics(methods.values(), counts))
        return made[0]

    return metrics


class _HttpApp:
    def __init__(
        self, store: Store, gateway: JsonGateway, metrics: Callable[[], Awaitable[Metrics]]
    ) -> None:
        self._store, self._gateway, self._metrics = store, gateway, metrics
        health = _Checks(store)
        self._pages: dict[str, Callable[[Scope, Send], Awaitable[None]]] = {
            "/health": self._health,
            "/version": self._version,
            "/metrics": self._expose,
            **_check_pages("/livez", {"serializable_read": health.serializable_read}),
            **_check_pages(
                "/readyz",
                {
                    "data_corruption": health.data_corruption,
                    "serializable_read": health.serializable_read,
                    "linearizable_read": health.linearizable_read,
                    "non_learner": health.non_learner,
                },
            ),
        }
        self._checks = health

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http"
        path: str = scope["path"]
        page = self._pages.get(path)
        if scope["method"] == "OPTIONS":
            # As etcd, but allowing nothing: to a browser that asks first, no CORS headers are a no.
            await reply(send, 200, b"", content_type=b"text/plain")
        elif path.startswith(PREFIXES):
            await self._gateway(scope, receive, send)
        elif page is None:
            await reply_text(send, 404, "404 page not found\n")
        elif scope["method"] != "GET":
            await reply_text(send, 405, "Method Not Allowed\n", allow="GET")
        else:
            await page(scope, send)

    async def _health(self, scope: Scope, send: Send) -> None:
        query = _query(scope)
        serializable = query.get("serializable", [""])[0] == "true"
        reason = None if serializable else self._checks.leader()
        if reason is None:
            reason = await self._checks.alarms(excluded=query.get("exclude", ()))
        if reason is None:
            wrong = await self._checks.read(serializable=serializable)
            reason = None if wrong is None else f"RANGE ERROR:{wrong}"
        body = {"health": "true" if reason is None else "false", "reason": reason or ""}
        await reply(send, 200 if reason is None else 503, msgspec.json.encode(body), content_type=_JSON)

    async def _version(self, _: Scope, send: Send) -> None:
        body = msgspec.json.encode({"etcdserver": ETCD_VERSION, "etcdcluster": CLUSTER_VERSION})
        await reply(send, 200, body, content_type=_JSON)

    async def _expose(self, scope: Scope, send: Send) -> None:
        metrics = await self._metrics()
        status, _ = await self._checks.status()
        accept = ",".join(header_values(scope, b"accept"))
        text, content_type = metrics.expose(status, self._checks.cluster, accept)
        await reply(send, 200, text, content_type=content_type.encode("ascii"))


def _check_pages(
    root: str, checks: Mapping[str, _Check]
) -> dict[str, Callable[[Scope, Send], Awaitable[None]]]:
    """A page for all the checks, and one for each."""

    async def run(names: Iterable[str], query: _Query, send: Send) -> None:
        lines, well = "", True
        for name in names:
            wrong = await checks[name]()
            lines += f"[+]{name} ok\n" if wrong is None else f"[-]{name} failed: {wrong}\n"
            well = well and wrong is None
        if not well:
            await reply_text(send, 503, lines)
        else:
            await reply_text(send, 200, f"{lines}ok\n" if "verbose" in query else "ok\n")

    async def run_all(scope: Scope, send: Send) -> None:
        query = _query(scope)
        # Excluding a check there is not is allowed, as in etcd: versions differ in which they have.
        await run([name for name in checks if name not in query.get("exclude", ())], query, send)

    def page(name: str) -> Callable[[Scope, Send], Awaitable[None]]:
        async def run_one(scope: Scope, send: Send) -> None:
            await run([name], _query(scope), send)

        return run_one

    return {root: run_all, **{f"{root}/{name}": page(name) for name in checks}}


class _Checks:
    """What can be wrong with a store, in etcd's words where it has any."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def cluster(self) -> ClusterHealth | None:
        cluster = self._store.cluster
        return None if cluster is None else cluster.health()

    def leader(self) -> str | None:
        """Whether there is one, in etcd's words; then why there is not."""
        cluster = self.cluster
        if cluster is None or cluster.is_serving:
            return None
        return f"RAFT NO LEADER: {cluster.reason}"

    async def status(self) -> tuple[StoreStatus | None, str | None]:
        """The status, or why there is none."""
        try:
            async with asyncio.timeout(CHECK_S_MAX):
                return await self._store.status(), None
        except TimeoutError:
            return None, _too_slow()
        except Unavailable as error:
            # A node without its cluster can still read: that is not for this to judge.
            return None, None if self.leader() is not None else str(error)
        except QuoracyError as error:
            return None, str(error)

    async def alarms(self, excluded: Iterable[str]) -> str | None:
        status, wrong = await self.status()
        if status is None:
            return wrong
        names = sorted({_ALARM_NAMES[alarm] for alarm in status.alarms} - set(excluded))
        return f"ALARM {names[0]}" if names else None

    async def read(self, *, serializable: bool) -> str | None:
        try:
            async with asyncio.timeout(CHECK_S_MAX):
                await self._store.range(_PROBE_KEY, keys_only=True, serializable=serializable)
        except TimeoutError:
            return _too_slow()
        except QuoracyError as error:
            return str(error)
        return None

    async def serializable_read(self) -> str | None:
        return await self.read(serializable=True)

    async def linearizable_read(self) -> str | None:
        return await self.read(serializable=False)

    async def data_corruption(self) -> str | None:
        """Data that can no longer be written are as good a reason to stay away as corrupt ones."""
        status, wrong = await self.status()
        if status is not None and Alarm.STORAGE_FAILED in status.alarms:
            return f"alarm activated: {_ALARM_NAMES[Alarm.STORAGE_FAILED]}"
        return wrong

    async def non_learner(self) -> str | None:
        """The member a node talks to may be one; nobody else is."""
        cluster = self.cluster
        return "this node's member is a learner" if cluster and cluster.role == "learner" else None


# Differs from etcd, which has no second: there, a disk that fails ends the process.
_ALARM_NAMES = {Alarm.NO_SPACE: "NOSPACE", Alarm.STORAGE_FAILED: "STORAGE_FAILED"}


def _too_slow() -> str:
    return f"the store did not answer within {CHECK_S_MAX:g} s"


def _query(scope: Scope) -> _Query:
    return parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)
