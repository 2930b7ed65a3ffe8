"""Edge cases: who hears of what, when, and how often."""

from __future__ import annotations

from collections.abc import Mapping

from tests.differential.zk_asking import (
    ANY_WATCHES,
    CHILD_WATCHES,
    DATA_WATCHES,
    EPHEMERAL,
    EPHEMERAL_SEQUENTIAL,
    PERSISTENT,
    RECURSIVE,
    SEQUENTIAL,
    add_watch,
    ask,
    check,
    check_watches,
    children,
    children2,
    close,
    create,
    create2,
    delete,
    exists,
    get,
    multi,
    ping,
    remove_watches,
    set_acl,
    set_data,
    set_watches,
    set_watches2,
    sync,
)
from tests.differential.zk_requests import OPEN, Mark, Op, Request
from tests.differential.zk_steps import As, Connect, Hangup, Step

__all__ = ["WATCHES"]


_EVENTS: Mapping[str, list[Step]] = {
    "an event comes before the reply to the change": [
        ask(0, create("/e")),
        ask(0, get("/e", watch=True)),
        ask(1, exists("/e", watch=True)),
        ask(0, set_data("/e", b"1")),
        ask(0, set_data("/e", b"2")),
    ],
    "and in a burst, between the replies": [
        ask(
            0,
            create("/e"),
            get("/e", watch=True),
            set_data("/e", b"1"),
            get("/e", watch=True),
            delete("/e"),
        ),
    ],
    **{
        f"a read in a burst sees what was asked before it, not after: {between}": [
            ask(0, create("/e")),
            ask(0, create("/e/s")),
            *[
                ask(
                    0,
                    create("/e/s/a", flags=SEQUENTIAL),
                    create("/e/s/b", flags=EPHEMERAL_SEQUENTIAL),
                    between,
                    create2("/e/s/c", flags=SEQUENTIAL),
                    get("/e"),
                    children2("/e/s"),
                    set_data("/e", data),
                    get("/e"),
                    create("/e/d", flags=SEQUENTIAL),
                    children("/e"),
                )
                for data in (b"1", b"22", b"333")
            ],
        ]
        for between in (
            multi(),
            multi(check("/e")),
            multi(check("/none")),
            multi(set_data("/e/s", b"x"), check("/e/s")),
            sync("/e"),
            get("/e"),
            ping(),
            set_data("/e/s", b"x"),
            set_data("/none"),
            create("/e/s"),
        )
    },
    "exists and getData have one watch": [
        ask(0, create("/e")),
        ask(0, get("/e", watch=True)),
        ask(0, exists("/e", watch=True)),
        ask(1, set_data("/e")),
        ask(1, set_data("/e")),
    ],
    "a deletion is told once to who watches data and children": [
        ask(0, create("/e")),
        ask(0, create("/e/a")),
        ask(0, get("/e/a", watch=True)),
        ask(0, children("/e/a", watch=True)),
        ask(0, children("/e", watch=True)),
        ask(1, delete("/e/a")),
        ask(1, create("/e/a")),
    ],
    "getData of nothing leaves no watch, exists does": [
        ask(0, get("/e", watch=True)),
        ask(0, children("/e", watch=True)),
        ask(1, create("/e")),
        ask(1, delete("/e")),
        ask(0, exists("/e", watch=True)),
        ask(1, create("/e")),
        ask(1, set_data("/e")),
    ],
    "a child's data is not the parent's business": [
        ask(0, create("/e")),
        ask(0, create("/e/a")),
        ask(0, children("/e", watch=True)),
        ask(1, set_data("/e/a", b"x")),
        ask(1, set_data("/e", b"x")),
        ask(1, create("/e/a/b")),
        ask(1, create("/e/b")),
        ask(1, create("/e/c")),
    ],
    "setACL fires nothing": [
        ask(0, create("/e")),
        ask(0, get("/e", watch=True)),
        ask(0, children("/e", watch=True)),
        ask(0, add_watch("/e", PERSISTENT)),
        ask(1, set_acl("/e", OPEN)),
    ],
    "the events of a multi, in the order of its parts": [
        ask(0, create("/e")),
        ask(0, create("/e/a")),
        ask(1, add_watch("/e", RECURSIVE)),
        ask(2, add_watch("/e", PERSISTENT)),
        ask(0, get("/e/a", watch=True)),
        ask(0, children("/e", watch=True)),
        ask(0, multi(set_data("/e"), create("/e/b"), delete("/e/a"), set_data("/e/b"), delete("/e/b"))),
        ask(0, multi(create("/e/c"), delete("/e/none"))),
    ],
    "persistent watches stay, recursive ones reach below": [
        ask(0, create("/e")),
        ask(1, add_watch("/e", PERSISTENT)),
        ask(2, add_watch("/e", RECURSIVE)),
        ask(0, create("/e/a")),
        ask(0, create("/e/a/b")),
        ask(0, set_data("/e/a/b", b"x")),
        ask(0, set_data("/e", b"x")),
        ask(0, delete("/e/a/b")),
        ask(0, delete("/e/a")),
        ask(0, delete("/e")),
        ask(0, create("/e")),
    ],
    "a recursive watch on the root": [
        ask(1, add_watch("/", RECURSIVE)),
        ask(0, create("/e")),
        ask(0, create("/e/a", flags=EPHEMERAL)),
        ask(0, set_data("/e/a")),
        ask(0, close()),
    ],
    "two recursive watches, one below the other": [
        ask(0, create("/e")),
        ask(0, create("/e/a")),
        ask(1, add_watch("/e", RECURSIVE)),
        ask(1, add_watch("/e/a", RECURSIVE)),
        ask(0, set_data("/e/a")),
        ask(0, create("/e/a/b")),
        ask(1, remove_watches("/e", ANY_WATCHES)),
        ask(0, delete("/e/a/b")),
    ],
    "watches that are checked and removed": [
        ask(0, create("/e")),
        ask(0, check_watches("/e", ANY_WATCHES)),
        ask(0, get("/e", watch=True)),
        ask(0, check_watches("/e", DATA_WATCHES)),
        ask(0, check_watches("/e", CHILD_WATCHES)),
        ask(0, check_watches("/e", ANY_WATCHES)),
        ask(0, remove_watches("/e", CHILD_WATCHES)),
        ask(0, remove_watches("/e", DATA_WATCHES)),
        ask(0, remove_watches("/e", DATA_WATCHES)),
        ask(0, children("/e", watch=True)),
        ask(0, exists("/e", watch=True)),
        ask(0, remove_watches("/e", ANY_WATCHES)),
        ask(1, set_data("/e")),
        ask(1, create("/e/a")),
        ask(0, check_watches("/none", ANY_WATCHES)),
        ask(0, check_watches(None, ANY_WATCHES)),
    ],
    "kinds of watches that there are not": [
        ask(0, create("/e")),
        ask(0, add_watch("/e", PERSISTENT)),
        ask(0, check_watches("/e", ANY_WATCHES)),
        ask(0, check_watches("/e", 0)),
        ask(0, remove_watches("/e", 0)),
        ask(0, remove_watches("/e", 99)),
        ask(0, add_watch("/e", 2)),
        ask(0, add_watch("/e", -1)),
        ask(0, add_watch("none", PERSISTENT)),
        ask(0, add_watch("", RECURSIVE)),
    ],
    "watches end with the connection": [
        ask(0, create("/e")),
        ask(1, get("/e", watch=True)),
        ask(1, add_watch("/e", RECURSIVE)),
        Hangup(1),
        Connect(1, As.OWN),
        ask(0, set_data("/e")),
    ],
}

_CATCHING_UP: Mapping[str, list[Step]] = {
    "setWatches: data": [
        ask(0, create("/a")),  # change 1
        ask(0, create("/b")),
        ask(0, set_data("/a", b"1")),  # change 3
        ask(1, set_watches(Mark(1), data=("/a", "/b", "/none"))),
        ask(1, set_watches(Mark(3), data=("/a", "/b"))),
        ask(0, set_data("/a")),
        ask(0, set_data("/b")),
    ],
    "setWatches: exists": [
        ask(0, create("/a")),
        ask(1, set_watches(Mark(1), exist=("/a", "/none"))),
        ask(0, create("/none")),
        ask(0, set_data("/a")),
    ],
    "setWatches: children, by the last change of them": [
        ask(0, create("/a")),  # 1
        ask(0, create("/a/x")),  # 2
        ask(0, set_data("/a/x", b"1")),  # 3
        ask(0, set_data("/a", b"1")),  # 4
        ask(1, set_watches(Mark(1), child=("/a", "/none"))),
        ask(1, set_watches(Mark(2), child=("/a",))),
        ask(0, create("/a/y")),
    ],
    "setWatches: what was made and deleted in between is missed": [
        ask(0, create("/a")),
        ask(0, create("/gone")),
        ask(0, delete("/gone")),
        ask(1, set_watches(Mark(1), exist=("/gone",), child=("/a",), data=("/a",))),
        ask(0, set_data("/a")),
    ],
    "setWatches: deleted and made again": [
        ask(0, create("/a")),
        ask(0, create("/a/x")),
        ask(0, delete("/a/x")),
        ask(0, create("/a/x")),
        ask(1, set_watches(Mark(2), data=("/a/x",), exist=("/a/x",), child=("/a",))),
        ask(1, set_watches(Mark(-1), data=("/a/x",), exist=("/a/x",), child=("/a", "/a/x"))),
        ask(0, delete("/a/x")),
    ],
    "setWatches2: persistent ones catch up with nothing": [
        ask(0, create("/a")),
        ask(0, create("/a/x")),
        ask(0, set_data("/a/x")),
        ask(1, set_watches2(0, persistent=("/a", "/none"))),
        ask(2, set_watches2(0, recursive=("/a", "/none"))),
        ask(0, set_data("/a")),
        ask(0, create("/a/y")),
        ask(0, create("/a/y/z")),
        ask(0, create("/none")),
    ],
    "setWatches2: everything at once, in the order of the lists": [
        ask(0, create("/a")),
        ask(0, create("/b")),
        ask(0, create("/b/x")),
        ask(1, set_watches2(0, data=("/b", "/n", "/a"), exist=("/b", "/a"), child=("/n", "/b", "/a"))),
    ],
    "setWatches: lists that are not there": [
        ask(0, create("/a")),
        ask(0, set_watches(0, data=None)),
        ask(0, set_watches(0, data=(None,))),
        ask(0, set_watches(0, exist=("", "no path"))),
        ask(0, set_watches(-1, data=("/a",))),
    ],
    "setWatches of many paths": [
        ask(0, create("/e")),
        ask(1, set_watches(0, data=tuple(f"/none/{n}" for n in range(100)), child=("/e",) * 50)),
        ask(1, set_watches(Mark(-1), exist=tuple(f"/none/{n}" for n in range(4_000)))),
        ask(0, create("/none")),
        ask(0, create("/none/3999")),
    ],
    "setWatches with another xid": [
        ask(0, Request(Op.SET_WATCHES, (0, ("/a",), (), ()), xid=5)),
        ask(0, Request(Op.SET_WATCHES2, (0, ("/a",), (), (), (), ()), xid=-1000)),
    ],
}

WATCHES: Mapping[str, list[Step]] = {**_EVENTS, **_CATCHING_UP}
