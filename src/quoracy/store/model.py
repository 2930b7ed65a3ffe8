"""The values of the waist: keys, revisions, requests, results, events.  Plain data, no behaviour.

The model is etcd's v3 data model: a flat, ordered map of byte keys to byte values; one global,
gapless revision; leases that own keys; events that watchers receive.  Every face translates its
protocol into these values and back, and every engine stores them.

All of them are frozen `msgspec.Struct`s: they are made an order of magnitude faster than frozen
dataclasses, are smaller, and with `gc=False` cost the garbage collector nothing (they hold no
containers, so they cannot form cycles).  Decision 0004 has the figures.
"""

from __future__ import annotations

from enum import Enum
from typing import Literal, NewType, TypeAlias

import msgspec

__all__ = [
    "NO_LEASE",
    "Alarm",
    "ClusterHealth",
    "Compare",
    "CompareTarget",
    "Delete",
    "DeleteResult",
    "Event",
    "EventKind",
    "KeyRange",
    "KeyValue",
    "Keys",
    "LeaseGrant",
    "LeaseId",
    "LeaseStatus",
    "MemberHealth",
    "Op",
    "OpResult",
    "Put",
    "PutResult",
    "Range",
    "RangeResult",
    "Relation",
    "Revision",
    "SortTarget",
    "StateHash",
    "StoreStatus",
    "Txn",
    "TxnResult",
    "WaitFirst",
    "WatchBatch",
]

Revision = NewType("Revision", int)
LeaseId = NewType("LeaseId", int)

NO_LEASE = LeaseId(0)


class KeyRange(msgspec.Struct, frozen=True, gc=False):
    """The keys from `start` up to, not including, `end`; with no `end`, all keys from `start` on.

    >>> KeyRange.exactly(b"jobs")
    KeyRange(start=b'jobs', end=b'jobs\\x00')
    >>> KeyRange.prefix(b"jobs/").contains(b"jobs/7")
    True
    """

    start: bytes
    end: bytes | None

    @classmethod
    def exactly(cls, key: bytes) -> KeyRange:
        return cls(key, key + b"\0")

    @classmethod
    def prefix(cls, prefix: bytes) -> KeyRange:
        # The first key after every key with this prefix: drop trailing 0xff bytes, add one to
        # the last that is left.  A prefix of nothing but 0xff has no such key.
        stem = prefix.rstrip(b"\xff")
        return cls(prefix, stem[:-1] + bytes((stem[-1] + 1,)) if stem else None)

    @classmethod
    def from_key(cls, start: bytes) -> KeyRange:
        return cls(start, None)

    @classmethod
    def everything(cls) -> KeyRange:
        return cls(b"", None)

    @property
    def is_single(self) -> bool:
        """Whether only the key `start` can be in it."""
        end = self.end
        return end is not None and len(end) == len(self.start) + 1 and end == self.start + b"\0"

    def contains(self, key: bytes) -> bool:
        return self.start <= key and (self.end is None or key < self.end)


# Wherever a range of keys is asked for, one key can be given as it is.
Keys: TypeAlias = KeyRange | bytes


class KeyValue(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One version of one key.  (Encoded as an array, in this order, where an engine encodes it.)

    In a delete event only `key` and `mod_revision` say anything, and `version` is 0.
    """

    key: bytes
    value: bytes
    create_revision: int
    mod_revision: int
    version: int
    lease: int = 0


# -- requests --------------------------------------------------------------------------------


class SortTarget(Enum):
    KEY = "key"
    VERSION = "version"
    CREATE = "create_revision"
    MOD = "mod_revision"
    VALUE = "value"


class Range(msgspec.Struct, frozen=True, gc=False):
    """Read keys.

    `at` reads a past revision.  `limit` cuts what is returned, never what is counted.  The revision
    bounds are inclusive (0 too is a bound) and filter what is returned, not the count.
    Order of work, as in etcd: fetch, filter, sort, limit, blank the values if `keys_only`.
    `serializable` allows an engine to answer from what it has, without asking for the newest.
    """

    keys: Keys
    at: int | None = None
    limit: int | None = None
    sort_by: SortTarget = SortTarget.KEY
    descending: bool = False
    keys_only: bool = False
    count_only: bool = False
    mod_revision_min: int | None = None
    mod_revision_max: int | None = None
    create_revision_min: int | None = None
    create_revision_max: int | None = None
    serializable: bool = False


class Put(msgspec.Struct, frozen=True, gc=False):
    """Write one key.

    `ignore_value` keeps the value the key has, `ignore_lease` the lease; both need the key to exist.
    A put that names no lease detaches the key from the one it had.
    """

    key: bytes
    value: bytes = b""
    lease: int = 0
    prev_kv: bool = False
    ignore_value: bool = False
    ignore_lease: bool = False


class Delete(msgspec.Struct, frozen=True, gc=False):
    """Remove every key of a range."""

    keys: Keys
    prev_kv: bool = False


class WaitFirst(msgspec.Struct, frozen=True, gc=False):
    """Wait until a key that was created at revision `token` is the oldest of the keys `name/...`.

    What locks and elections wait for (see `store.contention`).  The result is a revision at which the
    key was there and the oldest, or None once it is gone.
    """

    name: bytes
    key: bytes
    token: int


class CompareTarget(Enum):
    VALUE = "value"
    VERSION = "version"
    CREATE = "create_revision"
    MOD = "mod_revision"
    LEASE = "lease"


class Relation(Enum):
    EQUAL = "="
    NOT_EQUAL = "!="
    LESS = "<"
    GREATER = ">"


RelationSign: TypeAlias = Literal["=", "!=", "<", ">"]


class Compare(msgspec.Struct, frozen=True, gc=False):
    """A condition on one key, or on every key of a range.

    A key that does not exist has version, revisions and lease 0; a comparison of its *value* is
    always false.  A range with no keys in it is judged like one missing key.  [etcd txn.go]

    >>> Compare.version(b"jobs/7", "=", 3).relation
    <Relation.EQUAL: '='>
    """

    keys: Keys
    target: CompareTarget
    relation: Relation
    operand: bytes | int

    @classmethod
    def value(cls, keys: Keys, relation: RelationSign, value: bytes) -> Compare:
        return cls(keys, CompareTarget.VALUE, Relation(relation), value)

    @classmethod
    def version(cls, keys: Keys, relation: RelationSign, version: int) -> Compare:
        return cls(keys, CompareTarget.VERSION, Relation(relation), version)

    @classmethod
    def create_revision(cls, keys: Keys, relation: RelationSign, revision: int) -> Compare:
        return cls(keys, CompareTarget.CREATE, Relation(relation), revision)

    @classmethod
    def mod_revision(cls, keys: Keys, relation: RelationSign, revision: int) -> Compare:
        return cls(keys, CompareTarget.MOD, Relation(relation), revision)

    @classmethod
    def lease(cls, keys: Keys, relation: RelationSign, lease: int) -> Compare:
        return cls(keys, CompareTarget.LEASE, Relation(relation), lease)

    @classmethod
    def missing(cls, key: bytes) -> Compare:
        return cls(key, CompareTarget.CREATE, Relation.EQUAL, 0)

    @classmethod
    def exists(cls, key: bytes) -> Compare:
        return cls(key, CompareTarget.CREATE, Relation.GREATER, 0)


class Txn(msgspec.Struct, frozen=True):
    """If every compare holds, carry out `then`, else `otherwise`: atomically, in one revision.

    All compares, those of nested transactions too, look at the state before the transaction; a range
    among the operations sees what the operations before it wrote.  No key may be written twice.
    """

    compares: tuple[Compare, ...] = ()
    then: tuple[Op, ...] = ()
    otherwise: tuple[Op, ...] = ()


Op: TypeAlias = Range | Put | Delete | Txn


# -- results ---------------------------------------------------------------------------------
# `revision` in a result is the store's revision the answer speaks of: the one a write made, or the
# newest one a read could have seen.  Watching with `after=result.revision` misses nothing.


class RangeResult(msgspec.Struct, frozen=True):
    """What a range found: at most `limit` keys, and how many there are without the limit.

    is_stale: a serializable read of a replica that cannot tell at present whether there is more.
    """

    revision: Revision
    kvs: tuple[KeyValue, ...]
    count: int
    more: bool = False
    is_stale: bool = False


class PutResult(msgspec.Struct, frozen=True, gc=False):
    revision: Revision
    prev_kv: KeyValue | None = None


class DeleteResult(msgspec.Struct, frozen=True):
    revision: Revision
    deleted: int
    prev_kvs: tuple[KeyValue, ...] = ()


class TxnResult(msgspec.Struct, frozen=True):
    """`results` has one entry for each operation of the branch that was taken."""

    revision: Revision
    succeeded: bool
    results: tuple[OpResult, ...] = ()


OpResult: TypeAlias = RangeResult | PutResult | DeleteResult | TxnResult


# -- leases ----------------------------------------------------------------------------------


class LeaseGrant(msgspec.Struct, frozen=True, gc=False):
    """The lease that was granted; its time to live may be longer than what was asked for."""

    id: LeaseId
    ttl_s: float


class LeaseStatus(msgspec.Struct, frozen=True):
    id: LeaseId
    ttl_s: float
    remaining_s: float
    keys: tuple[bytes, ...] = ()


# -- events ----------------------------------------------------------------------------------


class EventKind(Enum):
    PUT = "put"
    DELETE = "delete"


class Event(msgspec.Struct, frozen=True, gc=False):
    """One change of one key; `prev_kv` is there if it was asked for, existed and is still kept."""

    kv: KeyValue
    prev_kv: KeyValue | None = None

    @property
    def kind(self) -> EventKind:
        return EventKind.PUT if self.kv.version else EventKind.DELETE

    @property
    def is_create(self) -> bool:
        return self.kv.version == 1


class WatchBatch(msgspec.Struct, frozen=True):
    """All events of one revision that a watch asked for, in the order they were written.

    Without events it is a progress notification: everything up to `revision` has been delivered.
    Either way, `after=batch.revision` continues exactly here.
    """

    revision: Revision
    events: tuple[Event, ...] = ()


# -- the store as a whole --------------------------------------------------------------------


class Alarm(Enum):
    NO_SPACE = "no space"
    STORAGE_FAILED = "storage failed"


class StateHash(msgspec.Struct, frozen=True, gc=False):
    """A digest of every key as it was at `revision`: equal digests, equal contents."""

    revision: Revision
    compact_revision: int
    digest: str


class StoreStatus(msgspec.Struct, frozen=True):
    """How the store is doing; `compact_revision` is 0 while nothing was compacted."""

    engine: str
    revision: Revision
    compact_revision: int
    keys_count: int
    leases_count: int
    watchers_count: int
    size_bytes: int
    size_bytes_max: int
    alarms: frozenset[Alarm] = frozenset()


class MemberHealth(msgspec.Struct, frozen=True):
    """One member of the cluster a store stands on, as it was when it was last asked.

    `error` says why it did not answer; what it would have told is then the last that is known.
    """

    name: str
    address: str
    version: str = ""
    is_leader: bool = False
    revision: int = 0
    size_bytes: int = 0
    error: str = ""


class ClusterHealth(msgspec.Struct, frozen=True):
    """How a store that stands on a cluster is doing, as this node sees it.

    is_serving: writes and linearizable reads are taken.  While it is False they fail at once, with
        `reason`; serializable reads go on, and what they show may be `stale_s` old.
    stale_s: how long ago it was last proved that the replica had everything; 0 while it is proved
        again and again.
    lag: revisions the cluster is known to have and the replica has not.
    leader: the name of the member that leads, empty while none is known.
    role: what the member this node talks to is: "leader", "follower", "learner", or "unknown".
    term: how often the cluster has begun to elect a leader; 0 if it is not known.
    warnings: what an operator has to know, one sentence each.
    """

    is_serving: bool
    reason: str
    stale_s: float
    revision: Revision
    lag: int
    leader: str
    role: str
    members: tuple[MemberHealth, ...] = ()
    warnings: tuple[str, ...] = ()
    term: int = 0
