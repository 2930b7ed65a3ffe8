"""Edge cases: several operations as one."""

from __future__ import annotations

from collections.abc import Mapping

from tests.differential.zk_asking import (
    EPHEMERAL,
    EPHEMERAL_SEQUENTIAL,
    SEQUENTIAL,
    ask,
    check,
    children,
    children2,
    close,
    create,
    create2,
    create_container,
    create_ttl,
    delete,
    ephemerals,
    exists,
    get,
    multi,
    multi_read,
    ping,
    set_acl,
    set_data,
    sync,
)
from tests.differential.zk_requests import OPEN, Op, Request
from tests.differential.zk_steps import Step

__all__ = ["MULTIS"]


MULTIS: Mapping[str, list[Step]] = {
    "multi: the codes of a failure": [
        ask(0, create("/e")),
        ask(
            0, multi(create("/e/a"), set_data("/e", b"x"), delete("/none"), create("/e/b"), check("/e"))
        ),
        ask(0, multi(delete("/none"))),
        ask(0, multi(check("/e", 7), create("/e/a"))),
        ask(0, children2("/e")),
    ],
    "multi: nothing, and only checks": [
        ask(0, multi()),
        ask(0, create("/e")),
        ask(0, multi(check("/e", 0))),
        ask(0, multi(check("/e", 0), check("/e", -1), check("/none"))),
        ask(0, ping()),
    ],
    "multi: every kind of result": [
        ask(
            0,
            multi(
                create("/e"),
                create2("/e/two", b"12"),
                create_container("/e/container"),
                create_ttl("/e/ttl", 1000),
                set_data("/e/two", b"123"),
                check("/e/two", 1),
                delete("/e/container"),
            ),
        ),
        ask(0, children2("/e")),
        ask(0, get("/e/two")),
    ],
    "multi: one node again and again": [
        ask(0, multi(create("/e"), set_data("/e", b"1"), set_data("/e", b"2"), check("/e", 2))),
        ask(0, exists("/e")),
        ask(0, multi(delete("/e"), create("/e"), set_data("/e", b"x", 0), delete("/e"))),
        ask(0, exists("/e")),
        ask(0, multi(create("/e"), create("/e"))),
        ask(0, multi(delete("/e"), delete("/e"))),
        ask(0, multi(create("/e"), create("/e/a"), create("/e/a/b"), delete("/e/a"))),
        ask(0, multi(create("/e"), create("/e/a"), delete("/e/a"), delete("/e"))),
    ],
    "multi: pzxid and versions of a parent changed twice": [
        ask(0, create("/e")),
        ask(0, multi(create2("/e/a"), create2("/e/b"), delete("/e/a"), create2("/e/a/c"))),
        ask(0, multi(create2("/e/a"), create2("/e/b"), delete("/e/a"), set_data("/e"))),
        ask(0, exists("/e")),
    ],
    "multi: a version known only inside": [
        ask(0, create("/e")),
        ask(0, multi(set_data("/e", b"1", 0), set_data("/e", b"2", 1), set_data("/e", b"3", 1))),
        ask(0, multi(set_data("/e", b"1", 0), set_data("/e", b"2", 1), delete("/e", 2))),
    ],
    "multi: ephemerals and sequences": [
        ask(
            0,
            multi(
                create("/e"),
                create("/e/x", flags=EPHEMERAL),
                create("/e/s", flags=EPHEMERAL_SEQUENTIAL),
                create("/e/s", flags=EPHEMERAL_SEQUENTIAL),
            ),
        ),
        ask(0, multi(create("/e/x/child"))),
        ask(0, multi(create("/f", flags=EPHEMERAL), create("/f/child"))),
        ask(0, ephemerals("/")),
        ask(0, close()),
        ask(1, children2("/e")),
    ],
    "multi: operations that have no place in it": [
        ask(0, create("/e")),
        ask(0, multi(create("/e/a"), get("/e"))),
        ask(0, multi(set_acl("/e", OPEN))),
        ask(0, multi(exists("/e"))),
        ask(0, multi(sync("/e"))),
        ask(0, multi(Request(77, (b"",)))),
        ask(0, multi(multi(create("/e/b")))),
        ask(0, children("/e")),
    ],
    "multi: reads alone": [
        ask(0, create("/e", b"data")),
        ask(0, multi(get("/e"), children("/e"))),
        ask(0, get("/e")),
    ],
    "multiRead does not stop at an error": [
        ask(0, create("/e", b"data")),
        ask(0, create("/e/a", None)),
        ask(0, multi_read(get("/e"), get("/none"), children("/e"), children("/none"), get("/e/a"))),
        ask(0, multi_read()),
        ask(0, multi_read(get("/e", watch=True), children("/e", watch=True))),
        ask(1, set_data("/e")),
        ask(1, create("/e/b")),
    ],
    "multiRead of other things": [
        ask(0, create("/e")),
        ask(0, multi_read(create("/e/a"))),
        ask(0, multi_read(get("/e"), create("/e/a"))),
        ask(0, multi_read(exists("/e"))),
        ask(0, exists("/e/a")),
    ],
    "multi: many parts": [
        ask(0, create("/e")),
        ask(0, multi(*[create("/e/s", flags=SEQUENTIAL) for _ in range(300)])),
        ask(0, multi(*[set_data("/e", bytes([n % 256])) for n in range(300)])),
        ask(0, multi(*[create(f"/e/{n}") for n in range(300)], delete("/none"))),
        ask(0, multi(*[check("/e") for _ in range(300)])),
        ask(0, multi(*[delete(f"/e/s{n:010}") for n in range(300)])),
        ask(0, multi(*[part for n in range(150) for part in (create("/e/x"), delete("/e/x"))])),
        ask(0, children2("/e")),
    ],
    "multi: large data": [
        ask(0, create("/e")),
        ask(0, multi(*[create(f"/e/{n}", bytes(200_000)) for n in range(5)])),
        ask(0, multi(*[set_data("/e/0", bytes(n)) for n in (500_000, 400_000, 3)])),
        ask(0, children2("/e")),
        ask(0, exists("/e/0")),
    ],
    "multi: bytes that are missing": [
        ask(0, Request(Op.MULTI, (create("/e"), create("/f")), cut=9)),
        ask(0, Request(Op.MULTI, (create("/e"), create("/f")), cut=12)),
        ask(0, Request(Op.MULTI, (create("/e"),), cut=5)),
        ask(0, exists("/e")),
    ],
    "multi: bad paths, flags and ACLs inside": [
        ask(0, multi(create("/e"), create("/e/"))),
        ask(0, multi(create("/e"), create("e"))),
        ask(0, multi(create("/e"), create("/e/a", flags=9))),
        ask(0, multi(create("/e"), create("/e/a", acl=()))),
        ask(0, multi(create("/e"), delete("/"))),
        ask(0, multi(create("/e"), create_ttl("/e/a", 0))),
        ask(0, multi(create("/e"), create_container("/e/a", flags=0))),
        ask(0, multi(set_data(None))),
        ask(0, exists("/e")),
    ],
}
