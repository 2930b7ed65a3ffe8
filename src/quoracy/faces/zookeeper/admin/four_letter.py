"""The four-letter words: `ruok`, `srvr`, `mntr` and the others, as ZooKeeper 3.8 answers them.

How a connection uses it
    The first four bytes of a connection are a word or the length of a ConnectRequest; `is_word` tells.
    If they are one: `text = await answer(word, view, rest)`, where `rest` is what came with it; send
    the text and hang up, also when there is none.  In `stats` a word is `received(1, 4)` and then
    `abandoned(1)`: it is no request that waits.

Invariants
    * Only words on the whitelist are carried out, and `srvr`, which ZooKeeper's own scripts need; where
      a server may become read-only `isro` as well, with which its clients look for one that is not.
      The others are answered with one line that says so; what is no word at all is not answered.
    * They change nothing but counters, and wait for the store for a bounded time.

Differs from ZooKeeper: no order of lines is promised within a list there; here it is that of sessions
and paths.  `stmk` keeps the mask, which nothing is traced by.
"""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime
from typing import Final, TypeAlias

from quoracy.faces.zookeeper.admin.report import (
    FULL_VERSION,
    ServerView,
    data_size,
    environment,
    hex64,
    last_operation,
    mode,
    monitor,
    session_deadlines_ms,
)
from quoracy.faces.zookeeper.admin.stats import ConnectionStats

__all__ = ["NOT_SERVING", "WORDS", "answer", "is_enabled", "is_word"]

NOT_SERVING: Final = "This ZooKeeper instance is not currently serving requests"

_MASK = struct.Struct(">q")
_TELNET_CLOSES: Final = b"\xff\xf4\xff\xfd"  # what telnet sends when it is interrupted

_Word: TypeAlias = Callable[[ServerView], Awaitable[str]]


def is_word(head: bytes) -> bool:
    """Whether the first four bytes of a connection are a word, carried out or not."""
    return head in WORDS


def is_enabled(word: bytes, view: ServerView) -> bool:
    whitelist = view.settings.commands_whitelist
    if word == b"srvr" or "*" in whitelist or word.decode("latin-1") in whitelist:
        return True
    return word == b"isro" and view.health is not None


async def answer(word: bytes, view: ServerView, rest: bytes = b"") -> bytes:
    """What to send before hanging up; `rest` is what came with the word, which `stmk` needs."""
    if not is_enabled(word, view):
        name = "telnet close" if word == _TELNET_CLOSES else word.decode("ascii")
        return f"{name} is not executed because it is not in the whitelist.\n".encode()
    if word == b"stmk":
        return _set_trace_mask(view, rest)
    if word in _ALWAYS:
        return (await _ALWAYS[word](view)).encode()
    if not view.running:
        return b"null" if word == b"isro" else f"{NOT_SERVING}\n".encode()
    if word in _WHEN_RUNNING:
        return (await _WHEN_RUNNING[word](view)).encode("utf-8", "replace")
    return b""  # telnet, of which nothing is expected


def _set_trace_mask(view: ServerView, rest: bytes) -> bytes:
    if len(rest) < _MASK.size:
        return b""
    (view.stats.trace_mask,) = _MASK.unpack_from(rest)
    return b"%d" % view.stats.trace_mask


# -- those that are answered whatever the server is doing


async def _ruok(_: ServerView) -> str:
    return "imok"


async def _gtmk(view: ServerView) -> str:
    return str(view.stats.trace_mask)


async def _envi(_: ServerView) -> str:
    return "Environment:\n" + "".join(f"{name}={text}\n" for name, text in environment().items())


# -- the server


async def _srvr(view: ServerView) -> str:
    return f"{_version(view)}{_server(view)}"


async def _stat(view: ServerView) -> str:
    clients = "".join(f"{_connection(each, brief=True)}\n" for each in _connections(view))
    return f"{_version(view)}Clients:\n{clients}\n{_server(view)}"


def _version(view: ServerView) -> str:
    notice = "READ-ONLY mode; serving only read-only clients\n" if view.is_read_only else ""
    return f"Zookeeper version: {FULL_VERSION}\n{notice}"


def _server(view: ServerView) -> str:
    stats = view.stats
    low, high = stats.latency_min_ms, stats.latency_max_ms
    return (
        f"Latency min/avg/max: {low}/{stats.latency_avg_ms}/{high}\n"
        f"Received: {stats.packets_received}\n"
        f"Sent: {stats.packets_sent}\n"
        f"Connections: {len(stats.connections)}\n"
        f"Outstanding: {stats.outstanding}\n"
        f"Zxid: {hex64(view.tree.zxid)}\n"
        f"Mode: {mode(view)}\n"
        f"Node count: {len(view.tree.nodes)}\n"
    )


async def _mntr(view: ServerView) -> str:
    return "".join(f"zk_{name}\t{value}\n" for name, value in monitor(view).items())


async def _conf(view: ServerView) -> str:
    settings = view.settings
    engine, size_bytes = await data_size(view)
    return (
        f"clientPort={view.client_port}\n"
        f"secureClientPort={view.secure_client_port}\n"
        f"dataDir={engine}\n"
        f"dataDirSize={size_bytes}\n"
        f"dataLogDir={engine}\n"
        f"dataLogSize={size_bytes}\n"
        f"tickTime={settings.tick_time}\n"
        f"maxClientCnxns={settings.max_client_cnxns}\n"
        f"minSessionTimeout={settings.session_timeout_min}\n"
        f"maxSessionTimeout={settings.session_timeout_max}\n"
        "clientPortListenBacklog=-1\n"
        "serverId=0\n"
    )


async def _dirs(view: ServerView) -> str:
    _, size_bytes = await data_size(view)
    return f"datadir_size: {size_bytes}\nlogdir_size: {size_bytes}\n"


async def _isro(view: ServerView) -> str:
    return "ro" if view.is_read_only else "rw"


async def _hash(_: ServerView) -> str:
    return ""  # no digests are kept, as there is no other server to compare them with


async def _srst(view: ServerView) -> str:
    view.stats.reset()
    return "Server stats reset.\n"


async def _crst(view: ServerView) -> str:
    for connection in view.stats.connections:
        connection.reset()
    return "Connection stats reset.\n"


# -- connections and sessions


def _connections(view: ServerView) -> list[ConnectionStats]:
    return sorted(view.stats.connections, key=lambda each: (each.host, each.port))


async def _cons(view: ServerView) -> str:
    lines = (f"{_connection(each, brief=False)}\n" for each in _connections(view))
    return "".join(lines) + "\n"


def _connection(stats: ConnectionStats, *, brief: bool) -> str:
    parts = [
        f"queued={stats.queued}",
        f"recved={stats.received_count}",
        f"sent={stats.sent_count}",
    ]
    if stats.session_id and not brief:
        parts += [
            f"sid={hex64(stats.session_id)}",
            f"lop={last_operation(stats)}",
            f"est={stats.established_ms}",
            f"to={stats.timeout_ms}",
            *([f"lcxid={hex64(stats.last_cxid)}"] if stats.last_cxid >= 0 else []),
            f"lzxid={hex64(stats.last_zxid)}",
            f"lresp={stats.last_response_ms}",
            f"llat={stats.last_latency_ms}",
            f"minlat={stats.latency_min_ms}",
            f"avglat={stats.latency_avg_ms}",
            f"maxlat={stats.latency_max_ms}",
        ]
    return f" {stats.address}[{int(stats.reading)}]({','.join(parts)})"


async def _dump(view: ServerView) -> str:
    deadlines = await session_deadlines_ms(view)
    sessions = {at: [hex64(each) for each in ids] for at, ids in deadlines.items()}
    ephemerals = {
        id: sorted(session.ephemerals)
        for id, session in sorted(view.tree.sessions.items())
        if session.ephemerals
    }
    text = f"SessionTracker dump:\nSession {_sets(view, sessions)}ephemeral nodes dump:\n"
    text += f"Sessions with Ephemerals ({len(ephemerals)}):\n"
    for id, paths in ephemerals.items():
        text += f"{hex64(id)}:\n{_indented(map(_text, paths))}"
    return f"{text}Connections dump:\nConnections {_sets(view, _connection_deadlines(view))}"


def _connection_deadlines(view: ServerView) -> dict[int, list[str]]:
    """Connections by when they are hung up on unless they are heard of, rounded up to the tick."""
    tick = view.settings.tick_time
    deadlines: dict[int, list[str]] = {}
    for each in _connections(view):
        heard_s = max(each.established_s, each.last_response_s)
        timeout_ms = each.timeout_ms or view.settings.session_timeout_min
        deadline_ms = ((int(1000 * heard_s) + timeout_ms) // tick + 1) * tick
        who = f"ip: {each.address} sessionId: {hex64(each.session_id)}"
        deadlines.setdefault(deadline_ms, []).append(who)
    return deadlines


def _sets(view: ServerView, deadlines: dict[int, list[str]]) -> str:
    wall_ahead_s = view.clock.wall() - view.clock.now()
    text = f"Sets ({len(deadlines)})/({sum(map(len, deadlines.values()))}):\n"
    for deadline_ms, members in sorted(deadlines.items()):
        moment = datetime.fromtimestamp(deadline_ms / 1000 + wall_ahead_s, UTC)
        # As Java's Date has it.
        text += f"{len(members)} expire at {moment:%a %b %d %H:%M:%S UTC %Y}:\n{_indented(members)}"
    return text


# -- watches


async def _wchs(view: ServerView) -> str:
    by_session = [list(paths) for _, paths in view.watches.by_session()]
    paths_count = sum(1 for _ in view.watches.by_path())
    return (
        f"{len(by_session)} connections watching {paths_count} paths\n"
        f"Total watches:{sum(map(len, by_session))}\n"
    )


async def _wchc(view: ServerView) -> str:
    text = "".join(
        f"{hex64(id)}\n{_indented(map(_text, sorted(paths)))}"
        for id, paths in sorted(view.watches.by_session())
    )
    return f"{text}\n"


async def _wchp(view: ServerView) -> str:
    text = "".join(
        f"{_text(path)}\n{_indented(map(hex64, sorted(ids)))}"
        for path, ids in sorted(view.watches.by_path())
    )
    return f"{text}\n"


def _indented(lines: Iterable[str]) -> str:
    return "".join(f"\t{line}\n" for line in lines)


def _text(path: bytes) -> str:
    return path.decode("utf-8", "replace")


_ALWAYS: Final[dict[bytes, _Word]] = {b"ruok": _ruok, b"gtmk": _gtmk, b"envi": _envi}
_WHEN_RUNNING: Final[dict[bytes, _Word]] = {
    b"conf": _conf,
    b"cons": _cons,
    b"crst": _crst,
    b"dirs": _dirs,
    b"dump": _dump,
    b"hash": _hash,
    b"isro": _isro,
    b"mntr": _mntr,
    b"srst": _srst,
    b"srvr": _srvr,
    b"stat": _stat,
    b"wchc": _wchc,
    b"wchp": _wchp,
    b"wchs": _wchs,
}
WORDS: Final = frozenset({*_ALWAYS, *_WHEN_RUNNING, b"stmk", _TELNET_CLOSES})
