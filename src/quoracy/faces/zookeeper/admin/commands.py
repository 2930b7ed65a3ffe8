"""ZooKeeper's AdminServer: its commands over HTTP, answered in JSON under its names.

    GET /commands            links to all of them
    GET /commands/NAME       {..., "command": NAME, "error": null}; `srvr`, `mntr` and such do for NAME

As there, a command that does not exist, or that cannot be carried out, is answered 200, and `error`
says so.  What changes data (`snapshot` and `restore`, a POST since 3.9) is not offered.

Invariants
    * Every client that reaches the port may ask; so web pages are kept away as everywhere here
      (`HostGuard`, `OriginGuard`), and so are those that send a browser here with a link.
    * Commands change nothing but counters, and wait for the store for a bounded time.
    * A client is the peer that connected: X-Forwarded-For means nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qs

from quoracy.faces.common.asgi import AsgiApp, Receive, Scope, Send, header_values, reply, reply_text
from quoracy.faces.common.guards import HostGuard, OriginGuard
from quoracy.faces.common.http1 import Http1Connections
from quoracy.faces.zookeeper.admin.four_letter import NOT_SERVING
from quoracy.faces.zookeeper.admin.report import (
    FULL_VERSION,
    ServerView,
    data_size,
    environment,
    last_operation,
    mode,
    monitor,
    properties,
    session_deadlines_ms,
    zoo_cfg,
)
from quoracy.faces.zookeeper.admin.stats import ConnectionStats

__all__ = ["COMMANDS", "make_admin_app", "run_command", "serve_admin"]

PREFIX: Final = "/commands"
# At this many connections the next one is hung up on.
CONNECTIONS_MAX = 100
DRAIN_S = 0.5

_LONG = re.compile(r"[+-]?[0-9]{1,19}")
_INT64_MAX = 2**63 - 1

Answer: TypeAlias = dict[str, Any]
_Arguments: TypeAlias = Mapping[str, str]
_Command: TypeAlias = Callable[[ServerView, _Arguments], Awaitable[Answer]]


@contextlib.asynccontextmanager
async def serve_admin(view: ServerView, listener: socket.socket, *, host: str) -> AsyncIterator[None]:
    """Answer on a bound socket for as long as the body runs; `host` is the one that was configured."""
    loop = asyncio.get_running_loop()
    connections = Http1Connections(
        make_admin_app(view, host=host), loop, connections_max=CONNECTIONS_MAX
    )
    server = await loop.create_server(connections.make_protocol, sock=listener, backlog=128)
    try:
        yield
    finally:
        server.close()
        await connections.drain(DRAIN_S)


def make_admin_app(view: ServerView, *, host: str) -> AsgiApp:
    """The application; `host` is the one that was configured."""

    async def app(scope: Scope, _: Receive, send: Send) -> None:
        path: str = scope["path"]
        if path != PREFIX and not path.startswith(f"{PREFIX}/"):
            await reply_text(send, 404, f"Not Found. GET {PREFIX} lists what there is.\n")
        elif scope["method"] not in ("GET", "HEAD"):
            await reply_text(send, 405, "Method Not Allowed\n", allow="GET, HEAD")
        elif _is_sent_by_a_page(scope):
            await reply_text(send, 403, "Web pages of other origins are not served here.\n")
        else:
            name = path.removeprefix(PREFIX).removeprefix("/")
            if not name:
                await reply(send, 200, _links(), content_type=b"text/html; charset=utf-8")
                return
            given = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)
            answered = await run_command(name, view, {key: texts[0] for key, texts in given.items()})
            await reply(send, 200, _json(answered), content_type=b"application/json")

    return HostGuard(OriginGuard(app), bound_host=host)


def _is_sent_by_a_page(scope: Scope) -> bool:
    """A page can have a browser GET anything, as an image for example; then there is no Origin."""
    return any(site in ("cross-site", "same-site") for site in header_values(scope, b"sec-fetch-site"))


async def run_command(name: str, view: ServerView, arguments: _Arguments) -> Answer:
    """Carry out a command by any of its names."""
    primary = _PRIMARY.get(name)
    if primary is None:
        return {"command": name, "error": f"Unknown command: {name}"}
    if not view.running and primary not in _ALWAYS:
        return {"command": name, "error": NOT_SERVING}
    answer = await COMMANDS[primary][1](view, arguments)
    return {**answer, "command": primary, "error": answer.get("error")}


def _json(answer: Answer) -> bytes:
    return json.dumps(answer, indent=2, separators=(",", " : "), ensure_ascii=False).encode(
        "utf-8", "replace"
    )


def _links() -> bytes:
    lines = (f'<a href="{PREFIX}/{name}">{name}</a>\n<br/>\n' for name in sorted(COMMANDS))
    return "".join(lines).encode()


# -- the server


async def _server_stats(view: ServerView, _: _Arguments) -> Answer:
    stats = view.stats
    size_bytes = (await data_size(view))[1]
    sizes = {
        "last_buffer_size": stats.last_response_bytes,
        "min_buffer_size": stats.min_response_bytes,
        "max_buffer_size": stats.max_response_bytes,
    }
    return {
        "version": FULL_VERSION,
        "read_only": view.is_read_only,
        "server_stats": {
            "packets_sent": stats.packets_sent,
            "packets_received": stats.packets_received,
            "fsync_threshold_exceed_count": 0,
            "client_response_stats": sizes,
            "data_dir_size": size_bytes,
            "log_dir_size": size_bytes,
            "server_state": mode(view),
            "last_processed_zxid": view.tree.zxid,
            "outstanding_requests": stats.outstanding,
            "avg_latency": stats.latency_avg_ms,
            "max_latency": stats.latency_max_ms,
            "min_latency": stats.latency_min_ms,
            "num_alive_client_connections": len(stats.connections),
            "uptime": stats.uptime_ms(view.clock.now()),
            "auth_failed_count": stats.auth_failed_count,
            "non_mtlsremote_conn_count": 0,
            "non_mtlslocal_conn_count": 0,
            "provider_null": False,
        },
        "client_response": sizes,
        "node_count": len(view.tree.nodes),
    }


async def _stats(view: ServerView, arguments: _Arguments) -> Answer:
    return {**await _server_stats(view, arguments), **_all_connections(view, _brief)}


async def _monitor(view: ServerView, _: _Arguments) -> Answer:
    return dict(monitor(view))


async def _configuration(view: ServerView, _: _Arguments) -> Answer:
    settings = view.settings
    engine = (await data_size(view))[0]
    return {
        "client_port": view.client_port,
        "data_dir": engine,
        "data_log_dir": engine,
        "tick_time": settings.tick_time,
        "max_client_cnxns": settings.max_client_cnxns,
        "min_session_timeout": settings.session_timeout_min,
        "max_session_timeout": settings.session_timeout_max,
        "server_id": 0,
        "client_port_listen_backlog": -1,
    }


async def _initial_configuration(view: ServerView, _: _Arguments) -> Answer:
    return {"initial_configuration": zoo_cfg(view)}


async def _dirs(view: ServerView, _: _Arguments) -> Answer:
    size_bytes = (await data_size(view))[1]
    return {"datadir_size": size_bytes, "logdir_size": size_bytes}


async def _environment(_: ServerView, __: _Arguments) -> Answer:
    return dict(environment())


async def _system_properties(_: ServerView, __: _Arguments) -> Answer:
    return dict(sorted(properties().items()))


async def _is_read_only(view: ServerView, _: _Arguments) -> Answer:
    return {"read_only": view.is_read_only}


async def _get_trace_mask(view: ServerView, _: _Arguments) -> Answer:
    return {"tracemask": view.stats.trace_mask}


async def _set_trace_mask(view: ServerView, arguments: _Arguments) -> Answer:
    text = arguments.get("traceMask")
    if text is None:
        return {"error": "setTraceMask requires long traceMask argument"}
    if not _LONG.fullmatch(text) or abs(int(text)) > _INT64_MAX:
        return {"error": f"setTraceMask requires long traceMask argument, got {text}"}
    view.stats.trace_mask = int(text)
    return {"tracemask": view.stats.trace_mask}


async def _stat_reset(view: ServerView, _: _Arguments) -> Answer:
    view.stats.reset()
    return {}


async def _nothing(_: ServerView, __: _Arguments) -> Answer:
    return {}


# -- connections, sessions, watches


async def _connections(view: ServerView, _: _Arguments) -> Answer:
    return _all_connections(view, _full)


def _all_connections(view: ServerView, shown: Callable[[ConnectionStats], Answer]) -> Answer:
    ordered = sorted(view.stats.connections, key=lambda each: (each.host, each.port))
    return {
        "connections": [shown(each) for each in ordered if not each.secure],
        "secure_connections": [shown(each) for each in ordered if each.secure],
    }


def _brief(stats: ConnectionStats) -> Answer:
    return {
        "remote_socket_address": stats.address.removeprefix("/"),
        "interest_ops": int(stats.reading),
        "outstanding_requests": stats.queued,
        "packets_received": stats.received_count,
        "packets_sent": stats.sent_count,
    }


def _full(stats: ConnectionStats) -> Answer:
    return {
        **_brief(stats),
        "session_id": stats.session_id,
        "last_operation": last_operation(stats),
        "established": stats.established_ms,
        "session_timeout": stats.timeout_ms,
        "last_cxid": stats.last_cxid,
        "last_zxid": stats.last_zxid,
        "last_response_time": stats.last_response_ms,
        "last_latency": stats.last_latency_ms,
        "min_latency": stats.latency_min_ms,
        "avg_latency": stats.latency_avg_ms,
        "max_latency": stats.latency_max_ms,
    }


async def _connection_stat_reset(view: ServerView, _: _Arguments) -> Answer:
    for connection in view.stats.connections:
        connection.reset()
    return {}


async def _dump(view: ServerView, _: _Arguments) -> Answer:
    deadlines = await session_deadlines_ms(view)
    return {
        "expiry_time_to_session_ids": {str(at_ms): ids for at_ms, ids in deadlines.items()},
        "session_id_to_ephemeral_paths": {
            str(id): [_text(path) for path in sorted(session.ephemerals)]
            for id, session in sorted(view.tree.sessions.items())
            if session.ephemerals
        },
    }


async def _watch_summary(view: ServerView, _: _Arguments) -> Answer:
    by_session = [list(paths) for _, paths in view.watches.by_session()]
    return {
        "num_connections": len(by_session),
        "num_paths": sum(1 for _ in view.watches.by_path()),
        "num_total_watches": sum(map(len, by_session)),
    }


async def _watches(view: ServerView, _: _Arguments) -> Answer:
    by_session = sorted(view.watches.by_session())
    return {
        "session_id_to_watched_paths": {
            str(id): [_text(path) for path in sorted(paths)] for id, paths in by_session
        }
    }


async def _watches_by_path(view: ServerView, _: _Arguments) -> Answer:
    by_path = sorted(view.watches.by_path())
    return {"path_to_session_ids": {_text(path): sorted(ids) for path, ids in by_path}}


def _text(path: bytes) -> str:
    return path.decode("utf-8", "replace")


# -- what a server has that is not part of an ensemble


async def _leader(view: ServerView, _: _Arguments) -> Answer:
    """On a cluster: of its members, in their order, the one that leads."""
    health = view.health
    if health is None or view.is_read_only:
        return {"error": "server is not initialized"}
    for number, member in enumerate(health.members, 1):
        if member.is_leader:
            host = member.address.rpartition(":")[0]
            return {"is_leader": mode(view) == "leader", "leader_id": number, "leader_ip": host}
    return {"is_leader": False, "leader_id": -1, "leader_ip": ""}


async def _observers(_: ServerView, __: _Arguments) -> Answer:
    return {"synced_observers": 0, "observers": []}


async def _voting_view(_: ServerView, __: _Arguments) -> Answer:
    return {"current_config": {}}


async def _zabstate(_: ServerView, __: _Arguments) -> Answer:
    return {"voting": False, "zabstate": ""}


async def _hash(_: ServerView, __: _Arguments) -> Answer:
    return {"digests": []}


async def _last_snapshot(_: ServerView, __: _Arguments) -> Answer:
    """There are none, which ZooKeeper says like this: every write is on disk by itself."""
    return {"zxid": "ffffffffffffffff", "timestamp": -1}


# By primary name: the others, and what it does.
COMMANDS: Final[dict[str, tuple[tuple[str, ...], _Command]]] = {
    "configuration": (("conf", "config"), _configuration),
    "connection_stat_reset": (("crst",), _connection_stat_reset),
    "connections": (("cons",), _connections),
    "dirs": ((), _dirs),
    "dump": ((), _dump),
    "environment": (("env", "envi"), _environment),
    "get_trace_mask": (("gtmk",), _get_trace_mask),
    "hash": ((), _hash),
    "initial_configuration": (("icfg",), _initial_configuration),
    "is_read_only": (("isro",), _is_read_only),
    "last_snapshot": (("lsnp",), _last_snapshot),
    "leader": (("lead",), _leader),
    "monitor": (("mntr",), _monitor),
    "observer_connection_stat_reset": (("orst",), _nothing),
    "observers": (("obsr",), _observers),
    "ruok": ((), _nothing),
    "server_stats": (("srvr",), _server_stats),
    "set_trace_mask": (("stmk",), _set_trace_mask),
    "stat_reset": (("srst",), _stat_reset),
    "stats": (("stat",), _stats),
    "system_properties": (("sysp",), _system_properties),
    "voting_view": ((), _voting_view),
    "watch_summary": (("wchs",), _watch_summary),
    "watches": (("wchc",), _watches),
    "watches_by_path": (("wchp",), _watches_by_path),
    "zabstate": ((), _zabstate),
}
_PRIMARY: Final = {
    name: primary for primary, (others, _) in COMMANDS.items() for name in (primary, *others)
}
# Those that need no tree.
_ALWAYS: Final = frozenset(
    {"environment", "get_trace_mask", "set_trace_mask", "system_properties", "zabstate"}
)
