"""Random sequences of steps, of every kind of request, that collide often.

Invariants
    * The same seed gives the same steps, whatever the servers answer.
    * Changes are below ROOT, a few names deep and wide, so that most requests meet what others did.
    * A client has one kind of watch: plain, persistent or recursive.  Until 3.9 ZooKeeper kept one of
      them for each path, the last that was asked for; we keep all, as it does now  [ZOOKEEPER-4466].
    * A burst holds only requests that a server answers in turn: ZooKeeper answers `auth`, `sasl` and
      operations it does not know as it reads them, ahead of what it was asked before.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from tests.differential.zk_requests import OPEN, Acl, Mark, Op, Request
from tests.differential.zk_steps import As, Ask, Connect, Hangup, Step
from tests.support.zookeeper_server import digest_id

__all__ = ["CLIENTS", "ROOT", "StepMaker", "moved_below"]

T = TypeVar("T")

CLIENTS = 4
_PERSISTENT, _RECURSIVE = 2, 3  # which clients have such watches
ROOT = "/r"

_PATHS = ["/r", "/r/a", "/r/b", "/r/a/c", "/r/a/d", "/r/a/c/x", "/r/e", "/r/e/k", "/r/a/é"]
_NUMBERED = ["/r/s0000000000", "/r/a/s0000000001", "/r/a/s0000000000", "/r/b/0000000000"]
_SEQUENTIAL = ["/r/s", "/r/a/s", "/r/b/", "/r/a/c/s", "/r/a", "/r/e/"]
_SYSTEM = ["/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"]
_BAD_PATHS: list[str | bytes] = [
    "",
    "r",
    "//",
    "/r//a",
    "/r/a/",
    "/r/./a",
    "/r/..",
    "/r/a/.",
    "/r/a\0b",
    "/r/\x01",
    "/r/\x7f",
    "/r/\x9f",
    "/r/\ue000",
    "/r/\ufff0",
    "/r/\U0001f600",
    b"/r/\xff",
    b"/r/\xed\xa0\x80",
]
_FLAGS = [0] * 7 + [1] * 5 + [2] * 5 + [3] * 3 + [4, 5, 6, 7, -1, 100]
_DATA = [None, b"", b"x", b"hello", bytes(range(256))]
_VERSIONS = [-1] * 10 + [0] * 4 + [1] * 3 + [2, 3, -2, 2**31 - 1]

USERS = [("u", "p"), ("v", "q"), ("u", "other")]
_AUTHS: list[tuple[str | None, bytes | None]] = [
    *[("digest", f"{user}:{password}".encode()) for user, password in USERS] * 3,
    ("digest", b"super:for tests"),
    ("digest", b"super:wrong"),
    ("digest", b"nocolon"),
    ("digest", b"a:b:c"),
    ("digest", b""),
    ("digest", None),
    ("ip", b"10.0.0.1"),
    ("world", b"anyone"),
    ("nobody", b"x"),
    (None, b"x"),
]

_ALL = 31
_GOOD_ACLS: list[tuple[Acl, ...]] = [
    (Acl(_ALL, "auth", ""),),
    (Acl(_ALL, "digest", digest_id("u", "p")),),
    (Acl(_ALL, "digest", digest_id("v", "q")), Acl(1, "world", "anyone")),
    (Acl(1, "world", "anyone"),),
    (Acl(1 | 2, "world", "anyone"),),
    (Acl(1 | 4, "world", "anyone"),),
    (Acl(1 | 8, "world", "anyone"),),
    (Acl(16, "world", "anyone"),),
    (Acl(_ALL, "ip", "127.0.0.1"),),
    (Acl(_ALL, "ip", "127.0.0.0/8"), Acl(1, "digest", digest_id("u", "p"))),
    (Acl(_ALL, "ip", "10.1.2.3"),),
    (Acl(2, "world", "anyone"), Acl(_ALL, "auth", "whatever")),
    (Acl(_ALL, "world", "anyone"), Acl(_ALL, "world", "anyone")),
]
_ODD_ACLS: list[tuple[Acl, ...] | None] = [
    (),
    None,
    (Acl(0, "world", "anyone"),),
    (Acl(32, "world", "anyone"),),
    (Acl(-1, "world", "anyone"),),
    (Acl(_ALL, "world", "bob"),),
    (Acl(_ALL, "world", ""),),
    (Acl(_ALL, "digest", "nocolon"),),
    (Acl(_ALL, "digest", "a:b:c"),),
    (Acl(_ALL, "ip", "localhost"),),
    (Acl(_ALL, "ip", "127.0.0.1/33"),),
    (Acl(_ALL, "ip", "1.2.3"),),
    (Acl(_ALL, "sasl", "me"),),
    (Acl(_ALL, "super", ""),),
    (Acl(_ALL, "nobody", "x"),),
    (Acl(_ALL, "world", "anyone"), Acl(_ALL, "nobody", "x")),
]

_TIMEOUTS = [30_000, 30_000, 0, -1, 5_000, 60_000, 10_000_000, 2**31 - 1]


class StepMaker:
    """The steps of one sequence."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._client = 0  # who takes the step that is being made
        # In some sequences most clients wait for answers, in others most do not.
        self._alone, self._burst_max = rng.choice([(0.75, 8), (0.75, 8), (0.3, 25)])

    def sequence(self, length: int) -> list[Step]:
        """Everyone connects, there are some nodes, and then anything happens."""
        steps: list[Step] = [self._connect_new(client) for client in range(CLIENTS)]
        for path in ("/r", "/r/a", "/r/b", "/r/a/c"):
            steps.append(Ask(0, (Request(Op.CREATE, (path, self._data(), OPEN, 0)),)))
        for _ in range(length):
            step = self._step()
            if isinstance(step, Connect) and step.as_ in _MAY_BE_REFUSED:
                # ZooKeeper ends the connection of a session that someone else cannot have.
                whose = (step.client + 1) % CLIENTS if step.as_ is As.OTHERS else step.client
                steps.append(Hangup(whose))
            steps.append(step)
        return steps

    def _step(self) -> Step:
        rng = self._rng
        client = self._client = rng.randrange(CLIENTS)
        kind = rng.random()
        if kind < self._alone:
            return Ask(client, (self._odd(self._request()),))
        if kind < 0.88:
            return Ask(client, self._burst())
        if kind < 0.89:
            return Hangup(client)
        if kind < 0.90:
            return Ask(client, (Request(Op.CLOSE_SESSION),))
        if kind < 0.95:
            return Connect(client, As.BACK, rng.choice(_TIMEOUTS))
        zxids: list[int | Mark] = [0, 0, 0, Mark(rng.randrange(40)), Mark(-1), -1]
        return Connect(
            client,
            rng.choice(list(As)),
            rng.choice(_TIMEOUTS),
            rng.choice([False, False, True, None]),
            rng.choice(zxids),
        )

    def _connect_new(self, client: int) -> Connect:
        return Connect(client, As.NEW, self._rng.choice(_TIMEOUTS), self._rng.choice([False, None]))

    # -- requests ----------------------------------------------------------------------------

    def _request(self, *, in_turn: bool = False) -> Request:
        while True:
            request = self._weighted(_REQUESTS)(self)
            if not in_turn or request.op not in _OUT_OF_TURN:
                return request

    def _burst(self) -> tuple[Request, ...]:
        requests: list[Request] = []
        for _ in range(self._rng.randint(2, self._burst_max)):
            requests.append(self._request(in_turn=True))
            # What comes right behind it ZooKeeper judges by the ACL before, or not: it is a race.
            if requests[-1].op == Op.SET_ACL:
                return tuple(requests)
        if self._rng.random() < 0.03:
            requests.append(Request(Op.CLOSE_SESSION))
        return tuple(requests)

    def _odd(self, request: Request) -> Request:
        """Now and then with an xid that clients do not use, or with bytes missing or left over."""
        rng = self._rng
        kind = rng.random()
        if kind < 0.03:
            return replace(request, xid=rng.choice([0, -2, -4, -8, -100, 2**31 - 1, -(2**31), 7]))
        if kind < 0.05 and request.op in _CUT_SAFELY:
            return replace(request, cut=rng.randint(1, 6))
        if kind < 0.06 and request.op in _CUT_SAFELY:
            return replace(request, tail=b"\0\0\0\1x")
        if kind < 0.065 and request.op in _WITHOUT_A_PATH:
            return replace(request, values=(None, *request.values[1:]))
        return request

    def _create(self) -> Request:
        return self._create_with(self._rng.choice(_FLAGS))

    def _create_part(self) -> Request:
        return self._create_with(self._rng.choice([flags for flags in _FLAGS if flags not in (5, 6)]))

    def _create_with(self, flags: int) -> Request:
        op = self._rng.choice([Op.CREATE, Op.CREATE, Op.CREATE2])
        return Request(op, (self._path_to_make(flags), self._data(), self._acl(), flags))

    def _create_container(self) -> Request:
        flags = self._rng.choice([4, 4, 4, 4, 0, 2])
        return Request(
            Op.CREATE_CONTAINER, (self._path_to_make(flags), self._data(), self._acl(), flags)
        )

    def _create_ttl(self) -> Request:
        rng = self._rng
        flags = rng.choice([5, 5, 6, 6, 0, 4])
        # ZooKeeper dies of a ttl that is out of range with flags that are not of TTL nodes.
        odd_ttls = [0, -1, 2**40, 2**63 - 1] if flags in (5, 6) else []
        ttl = rng.choice([1, 1000, 3_600_000, 2**40 - 1, *odd_ttls])
        return Request(
            Op.CREATE_TTL, (self._path_to_make(flags), self._data(), self._acl(), flags, ttl)
        )

    def _delete(self) -> Request:
        return Request(Op.DELETE, (self._path(), self._version()))

    def _exists(self) -> Request:
        return Request(Op.EXISTS, (self._path(), self._watch()))

    def _get_data(self) -> Request:
        return Request(Op.GET_DATA, (self._path(), self._watch()))

    def _set_data(self) -> Request:
        return Request(Op.SET_DATA, (self._path(), self._data(), self._version()))

    def _get_acl(self) -> Request:
        return Request(Op.GET_ACL, (self._path(),))

    def _set_acl(self) -> Request:
        # The root of all stays open most of the time: below a closed one nothing happens.
        path = self._path()
        while path in ("/r", "/") and self._rng.random() < 0.9:
            path = self._path()
        return Request(Op.SET_ACL, ("/r" if path == "/" else path, self._acl(), self._version()))

    def _get_children(self) -> Request:
        return Request(
            self._rng.choice([Op.GET_CHILDREN, Op.GET_CHILDREN2]), (self._path(), self._watch())
        )

    def _sync(self) -> Request:
        path = self._path()
        while isinstance(path, bytes) or "\U0001f600" in path:
            path = self._path()
        return Request(Op.SYNC, (path,))

    def _multi(self) -> Request:
        rng = self._rng
        parts: list[Request] = []
        for _ in range(rng.choice([0, 1, 2, 2, 3, 3, 4, 5])):
            if parts and rng.random() < 0.4:
                # The same node again: made and deleted, changed twice.
                path = parts[-1].values[0]
                parts.append(
                    rng.choice(
                        [
                            Request(Op.SET_DATA, (path, self._data(), self._version())),
                            Request(Op.DELETE, (path, self._version())),
                            Request(Op.CHECK, (path, self._version())),
                            Request(Op.CREATE, (path, self._data(), OPEN, rng.choice([0, 2]))),
                            Request(Op.CREATE2, (f"{path}/c", b"", OPEN, rng.choice([0, 1]))),
                        ]
                    )
                )
            else:
                parts.append(self._weighted(_PARTS)(self))
        return Request(Op.MULTI, tuple(parts))

    def _multi_read(self) -> Request:
        rng = self._rng
        kinds = [Op.GET_DATA, Op.GET_CHILDREN]
        parts = tuple(
            Request(rng.choice(kinds), (self._path(), self._watch())) for _ in range(rng.randint(0, 4))
        )
        return Request(Op.MULTI_READ, parts)

    def _check(self) -> Request:
        return Request(Op.CHECK, (self._path(), self._version()))

    def _set_watches(self) -> Request:
        rng = self._rng
        zxid = rng.choice([0, -1, Mark(-1), *[Mark(rng.randrange(60)) for _ in range(4)]])
        plain = [self._paths() if self._is_plain else () for _ in range(3)]
        if self._is_plain and rng.random() < 0.5:
            return Request(Op.SET_WATCHES, (zxid, *plain), xid=-8)
        persistent = self._paths() if self._client == _PERSISTENT else ()
        recursive = self._paths() if self._client == _RECURSIVE else ()
        return Request(Op.SET_WATCHES2, (zxid, *plain, persistent, recursive), xid=-8)

    def _add_watch(self) -> Request:
        rng = self._rng
        if rng.random() < 0.1:
            return Request(Op.ADD_WATCH, (self._path(), rng.choice([2, -1])))
        if self._is_plain:
            return Request(rng.choice([Op.GET_DATA, Op.EXISTS, Op.GET_CHILDREN]), (self._path(), True))
        return Request(Op.ADD_WATCH, (self._path(), 0 if self._client == _PERSISTENT else 1))

    def _check_watches(self) -> Request:
        op = self._rng.choice([Op.CHECK_WATCHES, Op.REMOVE_WATCHES])
        kinds = [1, 2, 3, 3, 0, 99] if self._is_plain else [3, 3, 3, 0]
        return Request(op, (self._path(), self._rng.choice(kinds)))

    def _get_ephemerals(self) -> Request:
        return Request(
            Op.GET_EPHEMERALS, (self._rng.choice(["/", "", " ", "/r", "/r/a", "/r/a/s", "/x", None]),)
        )

    def _count_children(self) -> Request:
        return Request(Op.GET_ALL_CHILDREN_NUMBER, (self._path(),))

    def _who_am_i(self) -> Request:
        return Request(Op.WHO_AM_I)

    def _auth(self) -> Request:
        scheme, auth = self._rng.choice(_AUTHS)
        return Request(Op.AUTH, (self._rng.choice([0, 0, 100]), scheme, auth), xid=-4)

    def _ping(self) -> Request:
        return Request(Op.PING, xid=self._rng.choice([-2, -2, None]))

    def _reconfig(self) -> Request:
        return Request(Op.RECONFIG, ("", None, "server.1=127.0.0.1:1:2;3", self._rng.choice([-1, 0])))

    def _sasl(self) -> Request:
        return Request(Op.SASL, (self._rng.choice([b"", b"token"]),))

    def _unknown(self) -> Request:
        op = self._rng.choice([0, 10, 23, 99, 108, 1000, -1, -2, 2**31 - 1])
        return Request(op, (b"\0\0\0\1/",))

    # -- values ------------------------------------------------------------------------------

    def _path(self) -> Any:
        kind = self._rng.random()
        if kind < 0.70:
            return self._rng.choice(_PATHS)
        if kind < 0.88:
            return self._rng.choice(_NUMBERED)
        if kind < 0.95:
            return self._rng.choice(_SYSTEM[:1])
        return self._rng.choice(_BAD_PATHS)

    def _paths(self) -> tuple[Any, ...]:
        return tuple(
            self._rng.choice(_PATHS + _NUMBERED) for _ in range(self._rng.choice([0, 0, 1, 2, 4]))
        )

    def _path_to_make(self, flags: int) -> Any:
        if flags in (2, 3, 6) and self._rng.random() < 0.9:
            return self._rng.choice(_SEQUENTIAL)
        while (path := self._path()) in _SYSTEM:
            pass
        return path

    def _data(self) -> bytes | None:
        return self._rng.choice(_DATA)

    def _version(self) -> int:
        return self._rng.choice(_VERSIONS)

    def _acl(self) -> tuple[Acl, ...] | None:
        kind = self._rng.random()
        if kind < 0.80:
            return OPEN
        if kind < 0.93:
            return self._rng.choice(_GOOD_ACLS)
        return self._rng.choice(_ODD_ACLS)

    def _watch(self) -> bool:
        return self._rng.random() < 0.5 and self._is_plain

    @property
    def _is_plain(self) -> bool:
        return self._client not in (_PERSISTENT, _RECURSIVE)

    def _weighted(self, weights: Sequence[tuple[T, int]]) -> T:
        things = [thing for thing, _ in weights]
        return self._rng.choices(things, [weight for _, weight in weights])[0]


def moved_below(root: str, steps: list[Step]) -> list[Step]:
    """The same steps in a tree of their own: none of them looks at the root of all.

    They begin, as a sequence does, with everyone's connection; then their tree is made.
    """
    top = f"{root}{ROOT}"
    moved: list[Step] = [
        replace(step, requests=tuple(_moved(top, request) for request in step.requests))
        if isinstance(step, Ask)
        else step
        for step in steps
    ]
    make = Ask(0, (Request(Op.CREATE, (root, b"", OPEN, 0)),))
    return [*moved[:CLIENTS], make, *moved[CLIENTS:]]


def _moved(top: str, value: Any) -> Any:
    match value:
        case Request():
            return replace(value, values=tuple(_moved(top, part) for part in value.values))
        case tuple():
            return tuple(_moved(top, part) for part in value)
        case "" | "/":
            return top
        case str() if value == ROOT or value.startswith(f"{ROOT}/"):
            return top + value.removeprefix(ROOT)
        case bytes() if value.startswith(f"{ROOT}/".encode()):
            return top.encode() + value.removeprefix(ROOT.encode())
        case _:
            return value


_MAY_BE_REFUSED = frozenset(
    {As.OWN_WRONG_PASSWORD, As.OWN_SHORT_PASSWORD, As.OWN_NO_PASSWORD, As.OTHERS}
)

_Maker = Callable[[StepMaker], Request]

_REQUESTS: list[tuple[_Maker, int]] = [
    (StepMaker._create, 24),
    (StepMaker._create_container, 2),
    (StepMaker._create_ttl, 3),
    (StepMaker._delete, 10),
    (StepMaker._exists, 6),
    (StepMaker._get_data, 8),
    (StepMaker._set_data, 8),
    (StepMaker._get_acl, 3),
    (StepMaker._set_acl, 3),
    (StepMaker._get_children, 7),
    (StepMaker._sync, 1),
    (StepMaker._multi, 12),
    (StepMaker._multi_read, 3),
    (StepMaker._set_watches, 3),
    (StepMaker._add_watch, 5),
    (StepMaker._check_watches, 4),
    (StepMaker._get_ephemerals, 2),
    (StepMaker._count_children, 2),
    (StepMaker._who_am_i, 1),
    (StepMaker._auth, 2),
    (StepMaker._ping, 1),
    (StepMaker._reconfig, 1),
    (StepMaker._sasl, 1),
    (StepMaker._unknown, 1),
]

_PARTS: list[tuple[_Maker, int]] = [
    (StepMaker._create_part, 20),
    (StepMaker._create_container, 2),
    (StepMaker._create_ttl, 3),
    (StepMaker._delete, 8),
    (StepMaker._set_data, 12),
    (StepMaker._check, 8),
    (StepMaker._set_acl, 1),
    (StepMaker._get_data, 1),
    (StepMaker._unknown, 1),
]

_OUT_OF_TURN = frozenset({Op.AUTH, Op.SASL, 0, 10, 23, 99, 108, 1000, -1, -2, 2**31 - 1})

# That there is no path is noticed sooner or later than other mistakes, so not all are asked without;
# and a watch on no path makes ZooKeeper fall silent when it is to be removed.
_WITHOUT_A_PATH = frozenset(
    {
        Op.DELETE,
        Op.EXISTS,
        Op.GET_DATA,
        Op.SET_DATA,
        Op.GET_ACL,
        Op.GET_CHILDREN,
        Op.GET_CHILDREN2,
        Op.SYNC,
        Op.GET_ALL_CHILDREN_NUMBER,
        Op.CHECK_WATCHES,
        Op.REMOVE_WATCHES,
    }
)

# Without their last bytes these are just unreadable; a frame without a whole header is another matter.
_CUT_SAFELY = frozenset(
    {
        Op.CREATE,
        Op.CREATE2,
        Op.CREATE_TTL,
        Op.DELETE,
        Op.EXISTS,
        Op.GET_DATA,
        Op.SET_DATA,
        Op.SET_ACL,
        Op.GET_CHILDREN,
        Op.GET_CHILDREN2,
        Op.MULTI,
        Op.MULTI_READ,
        Op.SET_WATCHES2,
        Op.ADD_WATCH,
        Op.REMOVE_WATCHES,
    }
)
