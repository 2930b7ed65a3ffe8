"""Where Quoracy means to differ from ZooKeeper 3.8.0, the one the tests run: each with its reason.

These are told from mistakes answer by answer; a test in test_zookeeper_intended.py shows each of them.
What cannot be told so, because the servers would know different things afterwards, is not asked in
random sequences; it is in AVOIDED.
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.differential.zk_connection import Connected, EventCame, Replied
from tests.differential.zk_requests import Op, Request, Shape
from tests.differential.zk_seen import Seen

__all__ = ["AVOIDED", "INTENDED", "intended"]

EVENT_ZXID = "the zxid of an event"
CREATE2_IN_MULTI = "create2 in a multi"
BODY_OF_ERROR = "the body of an error"
EXISTS_NEEDS_READ = "exists needs READ"
CHECK_WATCHES = "checkWatches is about one's own watches"
TIMEOUT_NEVER_GROWS = "the timeout of a session never grows"
FIRST_ZXID = "the zxid of the first nodes"

INTENDED: Mapping[str, str] = {
    EVENT_ZXID: "-1 there; here that of the change, as since 3.9, so that a client need not ask",
    CREATE2_IN_MULTI: "answered like create there; here with its Stat, as in the newest version",
    BODY_OF_ERROR: "a multi that could not be read has one there, which clients do not look at",
    EXISTS_NEEDS_READ: "everyone may ask there; here, as since 3.8.4, only who may read",
    CHECK_WATCHES: "there it is enough that someone watches, and a path without a slash is an error; "
    "here, as since 3.9, it says whether the one who asks has that watch",
    TIMEOUT_NEVER_GROWS: "a session is a lease, and what a lease was granted for is what it has",
    FIRST_ZXID: "0 there; here that of the revision in which the store got its first nodes",
}

AVOIDED: Mapping[str, str] = {
    "several kinds of watches on a path": "there the last one takes the place of those before it; "
    "here they are kept apart, as since 3.9",
    "a wrong password for a session that is connected": "there it ends the connection; here it is "
    "refused, and nothing else happens",
    "a request right behind a setACL": "there it is judged by the ACL before, if it is there before "
    "the setACL is done; here always by the new one",
    "zookeeper_stats that a client writes": "kept there, until the server dies of what it cannot read "
    "in it; here what is below the path is counted when someone asks",
    "a TTL out of range with other flags": "ends the process there; here BadArguments",
    "null where a string belongs": "there it is met when its turn comes, after flags or parts of a "
    "multi that are wrong; here first",
    "a watch on no path": "there the server falls silent when the watch is removed; here it is a path "
    "that no node has",
    "a TTL mode without a TTL in a multi": "there the multi fails with MarshallingError if it comes to "
    "that; here it does in any case",
    "check alone, where it is right": "never answered there; here it is",
    "createSession from a client": "answered like a connect request there; here Unimplemented",
    "sync of a path that is not UTF-8, or has characters outside the BMP": "comes back with other "
    "characters there; here as it was",
    "an IPv6 address in an ACL": "InvalidACL there; here it is matched, as in the newest version",
    "a path of more than 64 KiB": "a node like any other there; here BadArguments",
}


def intended(theirs: Seen, ours: Seen) -> str | None:
    """Which of INTENDED explains why the two are not equal; None if none does."""
    match theirs.item, ours.item:
        case EventCame(zxid=-1), EventCame() if theirs.shape[2:] == ours.shape[2:]:
            return EVENT_ZXID
        case Connected(), Connected():
            same = theirs.shape[:2] == ours.shape[:2] and theirs.shape[3:] == ours.shape[3:]
            shorter = 0 < ours.item.timeout_ms < theirs.item.timeout_ms
            return TIMEOUT_NEVER_GROWS if same and shorter else None
        case Replied(), Replied():
            return _intended_reply(theirs, theirs.item, ours, ours.item)
        case _:
            return None


def _intended_reply(theirs: Seen, their_reply: Replied, ours: Seen, our_reply: Replied) -> str | None:
    request, err = their_reply.request, their_reply.err
    if request is None or theirs.shape[:3] != ours.shape[:3]:
        return None
    if request.op == Op.EXISTS and err == 0 and our_reply.err == _NO_AUTH:
        return EXISTS_NEEDS_READ
    if request.op == Op.CHECK_WATCHES and our_reply.err == _NO_WATCHER:
        path = request.values[0]
        is_odd = err == _MARSHALLING_ERROR and isinstance(path, str) and not path.startswith("/")
        return CHECK_WATCHES if err == 0 or is_odd else None
    if err != our_reply.err or request.op not in (Op.MULTI, Op.MULTI_READ):
        return None
    if err != 0 and their_reply.body == _NO_RESULTS and not our_reply.body:
        return BODY_OF_ERROR
    plain = tuple(
        _without_stat(part, asked) for part, asked in zip(ours.shape[4], request.values, strict=False)
    )
    return CREATE2_IN_MULTI if plain == theirs.shape[4][:-1] else None


_MARSHALLING_ERROR = -5
_NO_AUTH = -102
_NO_WATCHER = -121
_CONTAINER = 4
_NO_RESULTS = b"\xff\xff\xff\xff\1\xff\xff\xff\xff"


def _without_stat(part: Shape, asked: object) -> Shape:
    match part, asked:
        case (Op.CREATE2, 0, (path, _)), Request(op=Op.CREATE2, values=(_, _, _, flags)):
            return part if flags == _CONTAINER else (int(Op.CREATE), 0, (path,))
        case _:
            return part
