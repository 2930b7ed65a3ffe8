"""Requests and steps by name, for sequences that are written by hand."""

from __future__ import annotations

from typing import Any

from tests.differential.zk_requests import OPEN, Acl, Mark, Op, Request
from tests.differential.zk_steps import Ask

__all__ = [
    "ANY_WATCHES",
    "CHILD_WATCHES",
    "CONTAINER",
    "DATA_WATCHES",
    "EPHEMERAL",
    "EPHEMERAL_SEQUENTIAL",
    "PERSISTENT",
    "RECURSIVE",
    "SEQUENTIAL",
    "TTL",
    "TTL_SEQUENTIAL",
    "add_watch",
    "ask",
    "auth",
    "check",
    "check_watches",
    "children",
    "children2",
    "close",
    "count",
    "create",
    "create2",
    "create_container",
    "create_ttl",
    "delete",
    "ephemerals",
    "exists",
    "get",
    "get_acl",
    "multi",
    "multi_read",
    "ping",
    "remove_watches",
    "set_acl",
    "set_data",
    "set_watches",
    "set_watches2",
    "sync",
    "who_am_i",
]

# Flags of a create, modes of addWatch, kinds of watches to check for or to remove.
EPHEMERAL, SEQUENTIAL, EPHEMERAL_SEQUENTIAL, CONTAINER, TTL, TTL_SEQUENTIAL = 1, 2, 3, 4, 5, 6
PERSISTENT, RECURSIVE = 0, 1
CHILD_WATCHES, DATA_WATCHES, ANY_WATCHES = 1, 2, 3

_Path = str | bytes | None
_Acls = tuple[Acl, ...] | None


def ask(client: int, *requests: Request) -> Ask:
    """Several are sent at once."""
    return Ask(client, requests)


def create(path: _Path, data: bytes | None = b"", acl: _Acls = OPEN, *, flags: int = 0) -> Request:
    return Request(Op.CREATE, (path, data, acl, flags))


def create2(path: _Path, data: bytes | None = b"", acl: _Acls = OPEN, *, flags: int = 0) -> Request:
    return Request(Op.CREATE2, (path, data, acl, flags))


def create_container(path: _Path, *, flags: int = CONTAINER) -> Request:
    return Request(Op.CREATE_CONTAINER, (path, b"", OPEN, flags))


def create_ttl(path: _Path, ttl_ms: int, *, flags: int = TTL) -> Request:
    return Request(Op.CREATE_TTL, (path, b"", OPEN, flags, ttl_ms))


def delete(path: _Path, version: int = -1) -> Request:
    return Request(Op.DELETE, (path, version))


def exists(path: _Path, *, watch: bool = False) -> Request:
    return Request(Op.EXISTS, (path, watch))


def get(path: _Path, *, watch: bool = False) -> Request:
    return Request(Op.GET_DATA, (path, watch))


def set_data(path: _Path, data: bytes | None = b"", version: int = -1) -> Request:
    return Request(Op.SET_DATA, (path, data, version))


def get_acl(path: _Path) -> Request:
    return Request(Op.GET_ACL, (path,))


def set_acl(path: _Path, acl: _Acls, version: int = -1) -> Request:
    return Request(Op.SET_ACL, (path, acl, version))


def children(path: _Path, *, watch: bool = False) -> Request:
    return Request(Op.GET_CHILDREN, (path, watch))


def children2(path: _Path, *, watch: bool = False) -> Request:
    return Request(Op.GET_CHILDREN2, (path, watch))


def sync(path: _Path) -> Request:
    return Request(Op.SYNC, (path,))


def check(path: _Path, version: int = -1) -> Request:
    return Request(Op.CHECK, (path, version))


def multi(*parts: Request) -> Request:
    return Request(Op.MULTI, parts)


def multi_read(*parts: Request) -> Request:
    return Request(Op.MULTI_READ, parts)


def set_watches(
    since: int | Mark,
    *,
    data: tuple[Any, ...] | None = (),
    exist: tuple[Any, ...] | None = (),
    child: tuple[Any, ...] | None = (),
) -> Request:
    return Request(Op.SET_WATCHES, (since, data, exist, child), xid=-8)


def set_watches2(
    since: int | Mark,
    *,
    data: tuple[Any, ...] = (),
    exist: tuple[Any, ...] = (),
    child: tuple[Any, ...] = (),
    persistent: tuple[Any, ...] = (),
    recursive: tuple[Any, ...] = (),
) -> Request:
    return Request(Op.SET_WATCHES2, (since, data, exist, child, persistent, recursive), xid=-8)


def add_watch(path: _Path, mode: int) -> Request:
    return Request(Op.ADD_WATCH, (path, mode))


def check_watches(path: _Path, kind: int) -> Request:
    return Request(Op.CHECK_WATCHES, (path, kind))


def remove_watches(path: _Path, kind: int) -> Request:
    return Request(Op.REMOVE_WATCHES, (path, kind))


def ephemerals(prefix: _Path) -> Request:
    return Request(Op.GET_EPHEMERALS, (prefix,))


def count(path: _Path) -> Request:
    return Request(Op.GET_ALL_CHILDREN_NUMBER, (path,))


def who_am_i() -> Request:
    return Request(Op.WHO_AM_I)


def auth(scheme: str | None, credentials: bytes | None) -> Request:
    return Request(Op.AUTH, (0, scheme, credentials), xid=-4)


def ping(xid: int | None = -2) -> Request:
    return Request(Op.PING, xid=xid)


def close() -> Request:
    return Request(Op.CLOSE_SESSION)
