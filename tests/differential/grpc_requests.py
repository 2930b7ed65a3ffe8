"""Random requests as etcd's messages, over few keys and leases so that they meet often.

Wrong ones are among them: empty keys, options that exclude each other, revisions and enums that do not
exist, operations without content, too many of them.  Revisions are drawn as distances from the newest
and the compacted one, and every sequence begins with the two equal: so a seed gives the same sequence
wherever it starts.

Left out are the requests that etcd 3.5.1 answers otherwise on purpose of ours (docs/compatibility.md),
and those it does not survive: a sort target that does not exist ends its process.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

from quoracy.wire.etcd import rpc
from quoracy.wire.protobuf import Message

__all__ = ["KEYS", "LEASES", "RequestMaker", "etcd_lets_it_write_twice"]

T = TypeVar("T")

# Prefixes of each other, the smallest and the largest bytes, and a key right after another.
KEYS = (
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
_VALUES = (b"", b"\0", b"1", b"1\0", b"2", b"\xff", b"\0" * 1_000)
_VALUE_LARGE = b"large" * 20_000
LEASES = (1, 2, 3, -4, 2**62, -(2**63))
_LEASE_WEIGHTS = (6, 2, 1, 1, 1, 1)  # one that holds many keys, and others
_LEASES_UNKNOWN = (99, -1, 2**63 - 1)
# Leases whose time to live is so short that they may be gone when they are asked for: nobody asks, and
# no two are alike.
_SHORT_LEASES_FROM = 2**40
_TTL_MAX_S = 9_000_000_000
_OPERATIONS_MAX = 128
_DEPTH_MAX = 3
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1


class RequestMaker:
    """Draws requests for a store at a given revision."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._revision = 1
        self._compact_revision = 0

    def at(self, *, revision: int, compact_revision: int) -> None:
        self._revision, self._compact_revision = revision, compact_revision

    def request(self) -> Message:
        return self.weighted(
            {
                self._range: 24,
                self._put: 30,
                self._delete: 6,
                self._txn: 28,
                self._grant: 4,
                self._revoke: 3,
                self._time_to_live: 3,
                self._keep_alive: 2,
                rpc.LeaseLeasesRequest: 1,
            }
        )()

    def grants(self) -> list[rpc.LeaseGrantRequest]:
        """What a sequence starts with, so that most leases it names exist."""
        return [rpc.LeaseGrantRequest(ID=lease, TTL=self._long_ttl_s()) for lease in LEASES[:4]]

    def compaction(self) -> rpc.CompactionRequest:
        rng = self._rng
        wanted = rng.choice(
            (
                self._revision - rng.randint(0, 10),
                self._revision - rng.randint(0, 30),
                self._revision + rng.randint(0, 2),
                self._compact_revision + rng.randint(-1, 1),
                rng.choice((0, -1, _INT64_MIN, _INT64_MAX)),
            )
        )
        return rpc.CompactionRequest(revision=wanted, physical=self.maybe())

    def watch(self) -> rpc.WatchCreateRequest:
        rng = self._rng
        key, range_end = (b"\0", b"\0") if self.maybe(0.3) else self._keys()
        start = rng.choice(
            (
                0,
                0,
                0,
                self._revision - rng.randint(0, 40),
                self._compact_revision + rng.randint(-3, 3),
                self._compact_revision,
                self._revision + rng.randint(1, 12),
                self._revision + 1,
                _INT64_MAX if self.maybe(0.1) else self._revision,
            )
        )
        filters = rng.choice(((), (), (), (), (0,), (1,), (1, 1), (0, 1), (7,), (1, -3)))
        if set(filters) == {0, 1}:
            start = 0  # Nothing would tell when it is done with history, and may lose it no more.
        return rpc.WatchCreateRequest(
            key=key,
            range_end=range_end,
            start_revision=max(start, 1) if start else 0,
            progress_notify=self.maybe(0.2),
            filters=filters,
            prev_kv=self.maybe(),
            watch_id=rng.choice((0, 0, 0, 1, 2, 5, 7, -2, _INT64_MAX)),
            fragment=self.maybe(0.3),
        )

    # -- keys ----------------------------------------------------------------------------------

    def _range(self) -> rpc.RangeRequest:
        rng = self._rng
        key, range_end = self._keys()
        return rpc.RangeRequest(
            key=key,
            range_end=range_end,
            limit=rng.choice((0, 0, 0, 0, 1, 2, 3, 5, -1, _INT64_MAX)),
            revision=self._a_revision() if self.maybe(0.3) else 0,
            sort_order=rng.choice(tuple(rpc.SortOrder)),
            sort_target=rng.choice(tuple(rpc.SortTarget)),
            serializable=self.maybe(0.3),
            keys_only=self.maybe(0.2),
            count_only=self.maybe(0.1),
            min_mod_revision=self._bound(),
            max_mod_revision=self._bound(),
            min_create_revision=self._bound(),
            max_create_revision=self._bound(),
        )

    def _range_in_txn(self) -> rpc.RangeRequest:
        request = self._range()
        # Less than 0 is the newest, but for etcd not in transactions.
        request.revision = max(request.revision, 0)
        return request

    def _put(self) -> rpc.PutRequest:
        rng = self._rng
        ignore_value, ignore_lease = self.maybe(0.1), self.maybe(0.1)
        # Sometimes a value or a lease where it says to ignore it: that is refused.
        value = b"" if ignore_value and self.maybe(0.8) else rng.choice(_VALUES)
        lease = self._lease() if self.maybe(0.35) else 0
        if ignore_lease and self.maybe(0.8):
            lease = 0
        return rpc.PutRequest(
            key=b"" if self.maybe(0.01) else rng.choice(KEYS),
            value=_VALUE_LARGE if value and self.maybe(0.005) else value,
            lease=lease,
            prev_kv=self.maybe(),
            ignore_value=ignore_value,
            ignore_lease=ignore_lease,
        )

    def _delete(self) -> rpc.DeleteRangeRequest:
        # Mostly one key: the store would be empty most of the time otherwise.
        key, range_end = (self._rng.choice(KEYS), b"") if self.maybe(0.6) else self._keys()
        return rpc.DeleteRangeRequest(key=key, range_end=range_end, prev_kv=self.maybe())

    def _txn(self) -> rpc.TxnRequest:
        if self.maybe(0.02):
            return self._long_txn()
        while True:
            txn = self._txn_of_depth(self._rng.randint(1, _DEPTH_MAX))
            if not etcd_lets_it_write_twice(txn):
                return txn

    def _txn_of_depth(self, depth: int) -> rpc.TxnRequest:
        return rpc.TxnRequest(
            compare=[self._compare() for _ in range(self._rng.choice((0, 1, 1, 2, 3)))],
            success=self._ops(depth),
            failure=self._ops(depth),
        )

    def _ops(self, depth: int) -> list[rpc.RequestOp]:
        makers: dict[Callable[[], rpc.RequestOp], int] = {
            lambda: rpc.RequestOp(request_put=self._put()): 40,
            lambda: rpc.RequestOp(request_range=self._range_in_txn()): 40,
            lambda: rpc.RequestOp(request_delete_range=self._delete()): 20,
        }
        if self.maybe(0.1):
            makers[rpc.RequestOp] = 10  # with nothing in it
        if depth > 1:
            makers[lambda: rpc.RequestOp(request_txn=self._txn_of_depth(depth - 1))] = 60
        count = self._rng.choice((0, 1, 1, 2, 2, 3, 4))
        return [self.weighted(makers)() for _ in range(count)]

    def _long_txn(self) -> rpc.TxnRequest:
        """As many operations as there may be, or one more, at the top or below."""
        rng = self._rng
        outside = rng.choice((0, 1, 64, _OPERATIONS_MAX))
        inside = _OPERATIONS_MAX - outside + rng.choice((0, 0, 1))
        nested = rpc.TxnRequest(
            success=[
                rpc.RequestOp(request_put=rpc.PutRequest(key=b"a%d" % number))
                for number in range(inside)
            ]
        )
        if not outside:
            return nested
        filler = [rpc.RequestOp(request_range=rpc.RangeRequest(key=b"a"))] * (outside - 1)
        ops = [*filler, rpc.RequestOp(request_txn=nested)]
        return rng.choice(
            (
                rpc.TxnRequest(success=ops),
                rpc.TxnRequest(failure=ops),
                rpc.TxnRequest(compare=[self._compare()] * outside, success=ops[-1:]),
            )
        )

    def _compare(self) -> rpc.Compare:
        rng = self._rng
        target: int = rng.choice(tuple(rpc.CompareTarget))
        # Mostly the operand of the target; sometimes that of another, or none at all.
        operand = rng.choice(tuple(rpc.CompareTarget)) if self.maybe(0.05) else target
        key, range_end = (rng.choice(KEYS), b"") if self.maybe() else self._keys()
        compare = rpc.Compare(
            result=9 if self.maybe(0.02) else rng.choice(tuple(rpc.CompareResult)),
            target=-2 if self.maybe(0.02) else target,
            key=key,
            range_end=range_end,
        )
        if self.maybe(0.05):
            return compare
        match operand:
            case rpc.CompareTarget.VALUE:
                compare.value = rng.choice(_VALUES)
            case rpc.CompareTarget.VERSION:
                compare.version = rng.choice((-1, 0, 0, 1, 2, 3))
            case rpc.CompareTarget.CREATE:
                compare.create_revision = self._revision_to_compare()
            case rpc.CompareTarget.MOD:
                compare.mod_revision = self._revision_to_compare()
            case rpc.CompareTarget.LEASE:
                compare.lease = rng.choice((0, self._lease()))
        return compare

    # -- leases --------------------------------------------------------------------------------

    def _grant(self) -> rpc.LeaseGrantRequest:
        lease = self._rng.choice(LEASES)
        if self.maybe(0.1):
            short_lived = _SHORT_LEASES_FROM + self._rng.randrange(2**40)
            ttl_s = self._rng.choice((-5, 0, 1, 2, _INT64_MIN))
            return rpc.LeaseGrantRequest(ID=short_lived, TTL=ttl_s)
        if self.maybe(0.1):
            return rpc.LeaseGrantRequest(ID=lease, TTL=self._rng.choice((_TTL_MAX_S + 1, _INT64_MAX)))
        return rpc.LeaseGrantRequest(ID=lease, TTL=self._long_ttl_s())

    def _revoke(self) -> rpc.LeaseRevokeRequest:
        return rpc.LeaseRevokeRequest(ID=self._lease_or_none())

    def _time_to_live(self) -> rpc.LeaseTimeToLiveRequest:
        return rpc.LeaseTimeToLiveRequest(ID=self._lease_or_none(), keys=self.maybe(0.8))

    def _keep_alive(self) -> rpc.LeaseKeepAliveRequest:
        return rpc.LeaseKeepAliveRequest(ID=self._lease_or_none())

    def _long_ttl_s(self) -> int:
        # Far longer than a test: none expires in one.
        return self._rng.choice((self._rng.randint(10_000, 100_000), _TTL_MAX_S))

    # -- parts ---------------------------------------------------------------------------------

    def _keys(self) -> tuple[bytes, bytes]:
        """Key and range_end in every form they can have, those with no keys in them too."""
        rng = self._rng
        key, other = rng.choice(KEYS), rng.choice(KEYS)
        return rng.choice(
            (
                (key, b""),
                (key, b""),
                (b"" if self.maybe(0.2) else key, b""),
                (b"" if self.maybe(0.2) else key, rng.choice((b"\0", other))),
                (key, key + b"\0"),
                (key, _prefix_end(key)),
                (key[:1], _prefix_end(key[:1])),
                (key, b"\0"),
                (b"\0", b"\0"),
                (min(key, other), max(key, other)),
                (min(key, other), max(key, other)),
                (key, other),
                (key, rng.choice((b"\0\0", key, b"\xff" * 20))),
            )
        )

    def _a_revision(self) -> int:
        rng = self._rng
        return rng.choice(
            (
                self._revision - rng.randint(0, 20),
                self._revision - rng.randint(0, 20),
                self._compact_revision + rng.randint(0, 5),
                self._compact_revision - rng.randint(0, 2),
                self._revision + rng.randint(0, 2),
                rng.choice((-1, 1, _INT64_MIN, _INT64_MAX)),
            )
        )

    def _revision_to_compare(self) -> int:
        rng = self._rng
        return rng.choice((0, 0, -1, self._revision, self._revision - rng.randint(-1, 20)))

    def _bound(self) -> int:
        if self.maybe(0.85):
            return 0
        return self._rng.choice((self._revision - self._rng.randint(-2, 40), -1, _INT64_MAX))

    def _lease(self) -> int:
        if self.maybe(0.05):
            return self._rng.choice(_LEASES_UNKNOWN)
        return self._rng.choices(LEASES, _LEASE_WEIGHTS)[0]

    def _lease_or_none(self) -> int:
        return 0 if self.maybe(0.05) else self._lease()

    def maybe(self, chance: float = 0.5) -> bool:
        return self._rng.random() < chance

    def one_of(self, choices: Sequence[T]) -> T:
        return self._rng.choice(choices)

    def weighted(self, choices: dict[T, int]) -> T:
        return self._rng.choices(tuple(choices), tuple(choices.values()))[0]


def _prefix_end(prefix: bytes) -> bytes:
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes((stem[-1] + 1,)) if stem else b"\0"


# -- what only etcd takes ------------------------------------------------------------------------


def etcd_lets_it_write_twice(txn: rpc.TxnRequest) -> bool:
    """Whether this may be one of the transactions that write a key twice and that etcd takes.

    Ours refuses them all.  etcd overlooks a put in one nested transaction and a delete in a later one
    beside it; and a put together with a delete whose range has no end.  [v3rpc/key.go, checkIntervals]
    """
    return any(_overlooked(ops) for ops in (txn.success, txn.failure))


def _overlooked(ops: Sequence[rpc.RequestOp]) -> bool:
    puts, deletes = _written(ops)
    if any(end == b"\0" and start <= key for start, end in deletes for key in puts):
        return True
    nested = [op for op in ops if op.request_txn is not None]
    for number, later in enumerate(nested):
        earlier_puts, _ = _written(nested[:number])
        _, later_deletes = _written((later,))
        if any(_covers(keys, key) for keys in later_deletes for key in earlier_puts):
            return True
    return any(etcd_lets_it_write_twice(op.request_txn) for op in nested if op.request_txn)


def _covers(keys: tuple[bytes, bytes], key: bytes) -> bool:
    start, end = keys
    return key == start if not end else start <= key and (end == b"\0" or key < end)


def _written(ops: Sequence[rpc.RequestOp]) -> tuple[set[bytes], list[tuple[bytes, bytes]]]:
    """Every key that `ops` may put, and every range that they may delete."""
    puts: set[bytes] = set()
    deletes: list[tuple[bytes, bytes]] = []
    for op in ops:
        if op.request_put is not None:
            puts.add(op.request_put.key)
        elif op.request_delete_range is not None:
            deletes.append((op.request_delete_range.key, op.request_delete_range.range_end))
        elif op.request_txn is not None:
            for branch in (op.request_txn.success, op.request_txn.failure):
                more_puts, more_deletes = _written(branch)
                puts |= more_puts
                deletes += more_deletes
    return puts, deletes
