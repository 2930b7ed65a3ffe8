"""Edge cases: connections, sessions, and requests that are not well-formed."""

from __future__ import annotations

from collections.abc import Mapping

from tests.differential.zk_asking import (
    EPHEMERAL,
    add_watch,
    ask,
    auth,
    check,
    check_watches,
    children,
    children2,
    close,
    count,
    create,
    create2,
    create_container,
    create_ttl,
    delete,
    ephemerals,
    exists,
    get,
    get_acl,
    multi,
    multi_read,
    ping,
    remove_watches,
    set_acl,
    set_data,
    set_watches,
    sync,
    who_am_i,
)
from tests.differential.zk_jute import int32, text
from tests.differential.zk_requests import OPEN, Mark, Op, Request
from tests.differential.zk_steps import As, Connect, Hangup, SendRaw, Step

__all__ = ["PROTOCOL"]


_FRAME_MAX = 0xFFFFF
_CREATE_BYTES = 49  # of the frame of a create of "/e", besides the data

_CONNECTING: Mapping[str, list[Step]] = {
    "timeouts are brought between the bounds": [
        Connect(0, As.NEW, timeout)
        for timeout in (0, 1, -1, 19_999, 20_000, 20_001, 30_000, 120_000, 120_001, 2**31 - 1, -(2**31))
    ],
    "clients that say nothing of read only, and those that do": [
        Connect(0, As.NEW, 30_000, None),
        ask(0, ping()),
        Connect(1, As.NEW, 30_000, True),
        ask(1, create("/e")),
        Connect(1, As.OWN, 30_000, None),
        Connect(1, As.OWN, 25_000, True),
    ],
    "the same session on a new connection": [
        ask(0, create("/e", flags=EPHEMERAL)),
        Connect(0, As.OWN, 50_000),
        ask(0, ephemerals("/")),
        Hangup(0),
        ask(1, exists("/e")),
        Connect(0, As.OWN, 10),
        ask(0, ephemerals("/")),
        ask(0, close()),
        ask(1, exists("/e")),
        Connect(0, As.ENDED),
    ],
    "who may not have a session": [
        Hangup(0),
        Connect(0, As.OWN_WRONG_PASSWORD),
        Connect(0, As.OWN_SHORT_PASSWORD),
        Connect(0, As.OWN_NO_PASSWORD),
        Connect(0, As.UNKNOWN),
        Connect(0, As.ENDED),
        Connect(0, As.OWN),
    ],
    "identities are not kept across connections": [
        ask(0, auth("digest", b"u:p")),
        ask(0, who_am_i()),
        Connect(0, As.OWN),
        ask(0, who_am_i()),
    ],
    "a client that has seen the future": [
        Connect(0, As.NEW, last_zxid=Mark(-1)),
        Connect(0, As.OWN, last_zxid=Mark(-1)),
        ask(1, create("/e")),
        Connect(1, As.NEW, last_zxid=Mark(1)),
        Connect(1, As.OWN, last_zxid=Mark(1)),
        Connect(1, As.NEW, last_zxid=-1),
    ],
}

_PROTOCOL: Mapping[str, list[Step]] = {
    "any xid comes back": [
        ask(0, Request(Op.EXISTS, ("/", False), xid=xid))
        for xid in (0, 7, 7, -2, -4, -8, 2**31 - 1, -(2**31))
    ],
    "a ping is answered as one, whatever its xid": [
        ask(0, ping()),
        ask(0, ping(17)),
        ask(0, ping(-1)),
        ask(0, Request(Op.PING, xid=-2, tail=b"more")),
    ],
    "an event's xid": [
        ask(0, Request(Op.EXISTS, ("/", True), xid=-1)),
    ],
    **{
        f"operation {op}": [
            ask(0, create("/e")),
            ask(0, Request(op, (text("/e"),))),
            ask(0, exists("/e")),
        ]
        for op in (0, 10, 23, 24, 99, 108, 1000, -1, -2, 2**31 - 1)
    },
    "check alone": [
        ask(0, create("/e")),
        ask(0, check("/none")),
        ask(0, check("/e", 5)),
        ask(0, exists("/e")),
    ],
    "reconfig": [
        ask(0, Request(Op.RECONFIG, (None, None, None, -1))),
        ask(0, Request(Op.RECONFIG, ("a", "b", None, 0), cut=3)),
    ],
    "sasl, where nobody has set it up": [
        ask(0, Request(Op.SASL, (b"token",))),
        ask(0, exists("/")),
    ],
    "deleteContainer is not for clients": [
        ask(0, create_container("/c")),
        ask(0, Request(Op.DELETE_CONTAINER, (text("/c"),))),
        ask(0, Request(Op.DELETE_CONTAINER, (b"/c",))),
        ask(0, exists("/c")),
    ],
    "bytes that are missing or left over": [
        ask(0, create("/e", b"data")),
        *[
            ask(0, Request(request.op, request.values, cut=cut))
            for request in (
                create("/e/a"),
                create2("/e/a"),
                create_ttl("/e/a", 1000),
                delete("/e"),
                exists("/e"),
                get("/e"),
                set_data("/e", b"x"),
                set_acl("/e", OPEN),
                get_acl("/e"),
                children("/e"),
                children2("/e"),
                sync("/e"),
                add_watch("/e", 0),
                check_watches("/e", 1),
                remove_watches("/e", 1),
                set_watches(0, data=("/e",)),
                count("/e"),
                ephemerals("/"),
                multi_read(get("/e")),
            )
            for cut in (1, 5)
        ],
        *[
            ask(0, Request(request.op, request.values, tail=b"left over"))
            for request in (
                create("/e/b"),
                exists("/e"),
                delete("/e/b"),
                who_am_i(),
                multi(),
                multi_read(),
            )
        ],
        ask(0, get("/e")),
    ],
    "counts and lengths that lie": [
        ask(0, create("/e")),
        # After the path and the data comes the count of the ACL; lengths are of strings and buffers.
        *[
            ask(0, Request(Op.CREATE, ("/a", b"", (), 0), cut=8, tail=int32(count_) + int32(0)))
            for count_ in (2**31 - 1, 1_000, -2, -(2**31))
        ],
        *[
            ask(0, Request(Op.EXISTS, ("", False), cut=5, tail=int32(length) + b"/e\0"))
            for length in (2**31 - 1, 1_000, -1, -2, -(2**31), 2)
        ],
        *[
            ask(0, Request(Op.SET_DATA, ("/e", b"", -1), cut=8, tail=int32(length) + b"abcd"))
            for length in (2**31 - 1, 1_000, -1, -2, -(2**31), 0)
        ],
        ask(0, Request(Op.SET_WATCHES, (0, (), (), ()), cut=12, tail=int32(2**31 - 1))),
    ],
    "a frame without a header": [
        SendRaw(0, int32(4) + int32(1)),
        SendRaw(1, int32(0)),
        SendRaw(2, int32(-1)),
    ],
    "a frame as large as it may be, and one byte more": [
        ask(0, create("/e", bytes(_FRAME_MAX - _CREATE_BYTES - 1))),
        ask(0, create("/f", bytes(_FRAME_MAX - _CREATE_BYTES))),
        ask(0, create("/g", bytes(_FRAME_MAX - _CREATE_BYTES + 1))),
        ask(1, exists("/e")),
        ask(1, exists("/f")),
        ask(1, exists("/g")),
        SendRaw(1, int32(_FRAME_MAX + 2)),
        SendRaw(2, int32(2**31 - 1)),
    ],
    "a long path": [
        ask(0, create("/" + "e" * 60_000)),
        ask(0, exists("/" + "e" * 60_000)),
        ask(0, exists("/" + "e" * 100_000)),
        ask(0, create("/a")),
        ask(0, create("/a" + "/." * 100_000)),
        ask(0, exists("/a" + "/b" * 100_000)),
    ],
    "close, and what comes behind it": [
        ask(0, create("/e", flags=EPHEMERAL)),
        ask(0, exists("/e"), close()),
        ask(1, exists("/e")),
    ],
}

PROTOCOL: Mapping[str, list[Step]] = {**_CONNECTING, **_PROTOCOL}
