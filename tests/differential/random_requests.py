"""Random requests over a few keys, values and leases, so that they meet often.  Pure but for its `rng`.

What is drawn depends on the store's revision, and on nothing else: a seed gives the same sequence of
requests relative to the revision it starts at.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TypeVar

from quoracy.store.model import (
    Compare,
    CompareTarget,
    Delete,
    KeyRange,
    Keys,
    Op,
    Put,
    Range,
    Relation,
    SortTarget,
    Txn,
)
from quoracy.store.rules import as_range
from tests.differential.asking import (
    Compact,
    Grant,
    KeepAlive,
    Leases,
    Request,
    Revoke,
    TimeToLive,
    Watch,
)

__all__ = ["RequestMaker", "etcd_lets_it_write_twice"]

T = TypeVar("T")

# Prefixes of each other, the smallest and the largest bytes, and a key right after another.
_KEYS = (
    b"\0",
    b"\0\0",
    b"a",
    b"a\0",
    b"a/",
    b"a/1",
    b"a/2",
    b"a\xff",
    b"a\xff\xff",
    b"b",
    b"c",
    b"\xff",
    b"\xff\0",
    b"\xff\xff",
)
_VALUES = (b"", b"\0", b"1", b"1\0", b"2", b"\xff")
_LEASES = (1, 2, 3, -4, 2**62)
_LEASES_AT_FIRST = _LEASES[:4]
_LEASE_WEIGHTS = (6, 2, 1, 1, 1)  # one that holds many keys, and others
_LEASE_UNKNOWN = 99
_DEPTH_MAX = 3


class RequestMaker:
    """Draws requests for a store at a given revision."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._revision = 1
        self._compact_revision = 0

    def grants(self) -> list[Grant]:
        """What a sequence starts with, so that most leases it names exist."""
        return [Grant(lease, self._ttl_s()) for lease in _LEASES_AT_FIRST]

    def request(self, *, revision: int, compact_revision: int) -> Request:
        self._revision, self._compact_revision = revision, compact_revision
        makers: dict[Callable[[], Request], int] = {
            self._put: 32,
            self._range: 22,
            self._txn: 26,
            self._delete: 6,
            self._grant: 5,
            self._revoke: 4,
            self._time_to_live: 4,
            self._keep_alive: 1,
            Leases: 1,
            self._compact: 2,
        }
        return self._weighted(makers)()

    def watch(self, *, revision: int, compact_revision: int) -> Watch:
        """A watch of history: mostly of what is kept, now and then from before it or the future."""
        oldest = max(1, compact_revision - 1)
        after = self._rng.choice(
            (
                self._rng.randint(max(1, oldest - 3), oldest),
                self._rng.randint(oldest, revision),
                self._rng.randint(oldest, revision),
                self._rng.randint(max(oldest, revision - 50), revision),
                self._rng.randint(revision, revision + 3),
            )
        )
        return self._watch(after)

    def live_watch(self, *, revision: int) -> Watch:
        """A watch of what is to come, from a revision on that may still be away."""
        return self._watch(self._rng.choice((revision, revision, revision + self._rng.randint(1, 9))))

    def _watch(self, after: int) -> Watch:
        keys: Keys = KeyRange.everything()
        if self._maybe(0.7):
            keys = self._keys()
        while not as_range(keys).contains(as_range(keys).start or b"\0"):
            keys = self._keys()
        puts, deletes = self._rng.choice(((True, True), (True, True), (True, False), (False, True)))
        return Watch(keys, after, puts=puts, deletes=deletes, prev_kv=self._maybe())

    # -- operations ----------------------------------------------------------------------------

    def _put(self) -> Put:
        rng = self._rng
        ignore_value, ignore_lease = self._maybe(0.1), self._maybe(0.1)
        # Sometimes a value or a lease where it says to ignore it: that is refused.
        value = b"" if ignore_value and self._maybe(0.9) else rng.choice(_VALUES)
        lease = self._lease() if self._maybe(0.35) else 0
        if ignore_lease and self._maybe(0.9):
            lease = 0
        return Put(
            key=b"" if self._maybe(0.01) else rng.choice(_KEYS),
            value=value,
            lease=lease,
            prev_kv=self._maybe(),
            ignore_value=ignore_value,
            ignore_lease=ignore_lease,
        )

    def _delete(self) -> Delete:
        # Mostly one key: the store would be empty most of the time otherwise.
        keys = self._rng.choice(_KEYS) if self._maybe(0.7) else self._keys()
        return Delete(keys, prev_kv=self._maybe())

    def _range(self) -> Range:
        rng = self._rng
        return Range(
            keys=self._keys(),
            at=self._at(),
            limit=rng.randint(1, 6) if self._maybe(0.3) else None,
            sort_by=rng.choice(tuple(SortTarget)),
            descending=self._maybe(0.4),
            keys_only=self._maybe(0.2),
            count_only=self._maybe(0.1),
            mod_revision_min=self._bound(),
            mod_revision_max=self._bound(),
            create_revision_min=self._bound(),
            create_revision_max=self._bound(),
            serializable=self._maybe(0.2),
        )

    def _txn(self) -> Txn:
        while True:
            txn = self._txn_of_depth(self._rng.randint(1, _DEPTH_MAX))
            if not etcd_lets_it_write_twice(txn):
                return txn

    def _txn_of_depth(self, depth: int) -> Txn:
        return Txn(
            compares=tuple(self._compare() for _ in range(self._rng.choice((0, 1, 1, 2, 3)))),
            then=self._ops(depth),
            otherwise=self._ops(depth),
        )

    def _ops(self, depth: int) -> tuple[Op, ...]:
        makers: dict[Callable[[], Op], int] = {self._put: 4, self._range: 4, self._delete: 2}
        if depth > 1:
            makers[lambda: self._txn_of_depth(depth - 1)] = 6
        return tuple(self._weighted(makers)() for _ in range(self._rng.choice((0, 1, 1, 2, 2, 3, 4))))

    def _compare(self) -> Compare:
        rng = self._rng
        target = rng.choice(tuple(CompareTarget))
        operand: bytes | int
        match target:
            case CompareTarget.VALUE:
                operand = rng.choice(_VALUES)
            case CompareTarget.VERSION:
                operand = rng.choice((-1, 0, 0, 1, 2, 3))
            case CompareTarget.CREATE | CompareTarget.MOD:
                operand = rng.choice(
                    (0, 0, self._revision, rng.randint(max(0, self._revision - 20), self._revision + 1))
                )
            case CompareTarget.LEASE:
                operand = rng.choice((0, self._lease()))
        keys: Keys = rng.choice(_KEYS) if self._maybe() else self._keys()
        return Compare(keys, target, rng.choice(tuple(Relation)), operand)

    # -- the rest ------------------------------------------------------------------------------

    def _grant(self) -> Grant:
        return Grant(self._rng.choice(_LEASES), self._ttl_s())

    def _revoke(self) -> Revoke:
        return Revoke(self._lease())

    def _time_to_live(self) -> TimeToLive:
        return TimeToLive(self._lease(), keys=self._maybe(0.8))

    def _keep_alive(self) -> KeepAlive:
        return KeepAlive(self._lease())

    def _compact(self) -> Compact:
        oldest, newest = self._compact_revision, self._revision
        return Compact(
            self._rng.choice(
                (
                    self._rng.randint(oldest, newest),
                    self._rng.randint(max(oldest, newest - 10), newest + 2),
                )
            )
        )

    # -- parts ---------------------------------------------------------------------------------

    def _keys(self) -> Keys:
        """Every form a range of keys can have, those with no keys in them too."""
        rng = self._rng
        key, other = rng.choice(_KEYS), rng.choice(_KEYS)
        return rng.choice(
            (
                key,
                key,
                key,
                b"" if self._maybe(0.05) else key,
                KeyRange.exactly(key),
                KeyRange.prefix(key),
                KeyRange.prefix(key[:1]),
                KeyRange.from_key(key),
                KeyRange.everything(),
                KeyRange(min(key, other), max(key, other)),
                KeyRange(min(key, other), max(key, other)),
                KeyRange(b"", key),
                KeyRange(key, other),
                KeyRange(key, rng.choice((b"", b"\0", key))),
            )
        )

    def _at(self) -> int | None:
        if self._maybe(0.7):
            return None
        rng, oldest, newest = self._rng, self._compact_revision, self._revision
        return rng.choice(
            (
                max(1, oldest),
                rng.randint(max(1, oldest - 2), max(1, oldest)),
                rng.randint(max(1, oldest - 2), newest),
                rng.randint(max(1, oldest, newest - 20), newest),
                rng.randint(max(1, oldest, newest - 20), newest),
                rng.randint(newest, newest + 2),
            )
        )

    def _bound(self) -> int | None:
        if self._maybe(0.85):
            return None
        return self._rng.randint(max(1, self._revision - 40), self._revision + 2)

    def _ttl_s(self) -> int:
        return self._rng.randint(10_000, 100_000)  # far longer than a test: none expires in one

    def _lease(self) -> int:
        if self._maybe(0.05):
            return _LEASE_UNKNOWN
        return self._rng.choices(_LEASES, _LEASE_WEIGHTS)[0]

    def _maybe(self, chance: float = 0.5) -> bool:
        return self._rng.random() < chance

    def _weighted(self, makers: dict[Callable[[], T], int]) -> Callable[[], T]:
        return self._rng.choices(tuple(makers), tuple(makers.values()))[0]


def etcd_lets_it_write_twice(txn: Txn) -> bool:
    """Whether this may be one of the transactions that write a key twice and that etcd takes.

    Ours refuses them all.  etcd overlooks two: a put in one nested transaction and a delete in a later
    one beside it; and a put together with a delete that has no end.  [etcd v3rpc/key.go,
    checkIntervals: the first is for the order it looks in, the second for taking the end "\\0", which
    stands for none, as a key, so that the interval is empty]
    """
    return any(_overlooked(ops) for ops in (txn.then, txn.otherwise))


def _overlooked(ops: tuple[Op, ...]) -> bool:
    puts, deletes = _written(ops)
    if any(keys.end is None and keys.contains(key) for keys in deletes for key in puts):
        return True
    nested = [op for op in ops if isinstance(op, Txn)]
    for number, later in enumerate(nested):
        earlier_puts, _ = _written(tuple(nested[:number]))
        _, later_deletes = _written((later,))
        if any(keys.contains(key) for keys in later_deletes for key in earlier_puts):
            return True
    return any(etcd_lets_it_write_twice(txn) for txn in nested)


def _written(ops: tuple[Op, ...]) -> tuple[set[bytes], list[KeyRange]]:
    """Every key that `ops` may put, and every range that they may delete."""
    puts: set[bytes] = set()
    deletes: list[KeyRange] = []
    for op in ops:
        match op:
            case Put():
                puts.add(op.key)
            case Delete():
                deletes.append(as_range(op.keys))
            case Txn():
                for branch in (op.then, op.otherwise):
                    more_puts, more_deletes = _written(branch)
                    puts |= more_puts
                    deletes += more_deletes
            case Range():
                pass
    return puts, deletes
