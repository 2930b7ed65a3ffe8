"""Edge cases: who may do what, and who one is."""

from __future__ import annotations

from collections.abc import Mapping

from tests.differential.zk_asking import (
    RECURSIVE,
    add_watch,
    ask,
    auth,
    check,
    children,
    children2,
    count,
    create,
    delete,
    exists,
    get,
    get_acl,
    multi,
    multi_read,
    set_acl,
    set_data,
    sync,
    who_am_i,
)
from tests.differential.zk_requests import OPEN, Acl, Op, Request
from tests.differential.zk_steps import Step
from tests.support.zookeeper_server import digest_id

__all__ = ["ACLS"]


_U = Acl(31, "digest", digest_id("u", "p"))
_V = Acl(31, "digest", digest_id("v", "q"))
_READ_ALL = Acl(1, "world", "anyone")

ACLS: Mapping[str, list[Step]] = {
    "the parent's ACL governs creation and deletion": [
        ask(0, create("/e")),
        ask(0, create("/e/a")),
        ask(0, set_acl("/e", (_READ_ALL,))),
        ask(0, create("/e/b")),
        ask(0, delete("/e/a")),
        ask(0, set_data("/e/a", b"x")),
        ask(0, set_data("/e", b"x")),
        ask(0, set_acl("/e", OPEN)),
        ask(0, delete("/e")),
        ask(0, get("/e")),
    ],
    "each permission alone": [
        step
        for perms in (1, 2, 4, 8, 16)
        for step in (
            ask(0, create(f"/p{perms}")),
            ask(0, create(f"/p{perms}/old")),
            ask(0, set_acl(f"/p{perms}", (Acl(perms, "world", "anyone"),))),
            ask(0, exists(f"/p{perms}")),
            ask(0, get(f"/p{perms}")),
            ask(0, children(f"/p{perms}")),
            ask(0, children2(f"/p{perms}")),
            ask(0, count(f"/p{perms}")),
            ask(0, get_acl(f"/p{perms}")),
            ask(0, set_data(f"/p{perms}", b"x")),
            ask(0, create(f"/p{perms}/new")),
            ask(0, delete(f"/p{perms}/old")),
            ask(0, multi(check(f"/p{perms}"))),
            ask(0, multi_read(get(f"/p{perms}"), children(f"/p{perms}"))),
            ask(0, sync(f"/p{perms}")),
            ask(0, set_acl(f"/p{perms}", OPEN)),
        )
    ],
    "auth stands for everyone who I am": [
        ask(0, create("/none", acl=(Acl(31, "auth", ""),))),
        ask(0, auth("digest", b"u:p")),
        ask(0, create("/e", acl=(Acl(31, "auth", ""),))),
        ask(0, get_acl("/e")),
        ask(0, auth("digest", b"v:q")),
        ask(0, create("/f", acl=(_READ_ALL, Acl(3, "auth", "ignored")))),
        ask(0, get_acl("/f")),
        ask(0, get("/e")),
        ask(1, get("/e")),
        ask(1, get("/f")),
        ask(1, get_acl("/f")),
        ask(1, get_acl("/e")),
        ask(1, auth("digest", b"v:q")),
        ask(1, set_data("/f", b"x")),
        ask(1, get_acl("/f")),
        ask(1, delete("/e")),
    ],
    "digests are masked for those who may not change them": [
        ask(0, create("/e", acl=(_U, _READ_ALL, Acl(1, "ip", "127.0.0.1")))),
        ask(0, get_acl("/e")),
        ask(0, auth("digest", b"u:p")),
        ask(0, get_acl("/e")),
        ask(1, create("/f", acl=(_V, Acl(16, "world", "anyone")))),
        ask(1, get_acl("/f")),
        ask(1, get("/f")),
    ],
    "ACLs that are refused": [
        *[
            ask(0, create("/e", acl=acl))
            for acl in (
                (),
                None,
                (Acl(31, "world", "bob"),),
                (Acl(31, "world", ""),),
                (Acl(31, "digest", "nocolon"),),
                (Acl(31, "digest", "a:b:c"),),
                (Acl(31, "digest", ""),),
                (Acl(31, "ip", "localhost"),),
                (Acl(31, "ip", "1.2.3"),),
                (Acl(31, "ip", "1.2.3.256"),),
                (Acl(31, "ip", "127.0.0.1/33"),),
                (Acl(31, "ip", "127.0.0.1/-1"),),
                (Acl(31, "ip", "127.0.0.1/x"),),
                (Acl(31, "ip", ""),),
                (Acl(31, "nobody", "x"),),
                (Acl(31, "sasl", "x"),),
                (Acl(31, "x509", "CN=x"),),
                (Acl(31, "super", ""),),
                (Acl(31, "", ""),),
                (Acl(31, None, "anyone"),),
                (Acl(31, "world", None),),
                (Acl(31, "digest", None),),
                (Acl(31, "world", "anyone"), Acl(31, "nobody", "x")),
            )
        ],
        ask(0, create("/e")),
        ask(0, set_acl("/e", ())),
        ask(0, set_acl("/e", None)),
        ask(0, set_acl("/e", (Acl(31, "nobody", "x"),))),
        ask(0, set_acl("/none", ())),
        ask(0, get_acl("/e")),
    ],
    "ACLs that are odd and accepted": [
        step
        for number, acl in enumerate(
            [
                (Acl(0, "world", "anyone"), Acl(16, "world", "anyone")),
                (Acl(32 | 16 | 1, "world", "anyone"),),
                (Acl(-1, "world", "anyone"),),
                (Acl(31, "world", "anyone"), Acl(31, "world", "anyone"), _READ_ALL),
                (Acl(31, "digest", ":"), _READ_ALL, Acl(16, "world", "anyone")),
                (Acl(31, "ip", "127.0.0.0/8"),),
                (Acl(31, "ip", "0.0.0.0/0"),),
                (Acl(31, "ip", "127.0.0.1/32"), Acl(31, "ip", "127.0.0.1")),
                (Acl(31, "ip", "10.0.0.1"), _READ_ALL),
            ]
        )
        for step in (
            ask(0, create(f"/e{number}", acl=acl)),
            ask(0, get_acl(f"/e{number}")),
            ask(0, set_data(f"/e{number}", b"x")),
        )
    ],
    "who am I": [
        ask(0, who_am_i()),
        ask(0, auth("digest", b"u:p")),
        ask(0, auth("digest", b"u:p")),
        ask(0, auth("digest", b"v:q")),
        ask(0, auth("ip", b"10.0.0.1")),
        ask(0, auth("digest", b"a:b:c")),
        ask(0, who_am_i()),
        ask(0, auth("digest", b"super:for tests")),
        ask(0, who_am_i()),
    ],
    **{
        f"auth that is {'accepted or refused'}: {scheme} {credentials!r}": [
            ask(0, auth(scheme, credentials)),
            ask(0, who_am_i()),
        ]
        for scheme, credentials in (
            ("digest", b"nocolon"),
            ("digest", b""),
            ("digest", b":"),
            ("digest", b"\xff:\xfe"),
            ("digest", None),
            ("digest", b"super:wrong"),
            ("ip", b""),
            ("ip", None),
            ("world", b"anyone"),
            ("auth", b""),
            ("sasl", b"x"),
            ("x509", b"x"),
            ("nobody", b"x"),
            ("", b"x"),
            (None, b"x"),
        )
    },
    "auth with another xid": [
        ask(0, Request(Op.AUTH, (0, "digest", b"u:p"), xid=5)),
        ask(0, Request(Op.AUTH, (0, "digest", b"u:p"), xid=-4, cut=3)),
    ],
    "the super user": [
        ask(0, create("/e", acl=(_U,))),
        ask(0, get("/e")),
        ask(1, auth("digest", b"super:for tests")),
        ask(1, get("/e")),
        ask(1, get_acl("/e")),
        ask(1, set_acl("/e", (Acl(0, "world", "anyone"),))),
        ask(1, set_data("/e", b"x")),
        ask(1, create("/e/a", acl=(Acl(31, "auth", ""),))),
        ask(1, get_acl("/e/a")),
        ask(1, delete("/e/a")),
        ask(1, set_data("/zookeeper/config", b"x", 77)),
    ],
    "a watcher who may not read any more": [
        ask(0, create("/e")),
        ask(0, create("/e/a")),
        ask(1, get("/e", watch=True)),
        ask(1, children("/e", watch=True)),
        ask(2, add_watch("/e", RECURSIVE)),
        ask(0, auth("digest", b"u:p")),
        ask(0, set_acl("/e", (_U,))),
        ask(0, set_data("/e", b"secret")),
        ask(0, create("/e/b")),
        ask(0, create("/e/c", acl=(_U,))),
        ask(0, set_data("/e/c")),
        ask(0, set_data("/e/a")),
        ask(0, delete("/e/c")),
        ask(0, delete("/e/a")),
    ],
}
