"""What can be asked of both stores: the operations of the model, and values for the other methods."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from quoracy.errors import QuoracyError
from quoracy.store.model import (
    Delete,
    DeleteResult,
    Event,
    Keys,
    Put,
    PutResult,
    Range,
    RangeResult,
    Txn,
    TxnResult,
)

__all__ = [
    "Answer",
    "Compact",
    "Done",
    "Grant",
    "Granted",
    "KeepAlive",
    "LeaseKeys",
    "Leases",
    "LeasesHeld",
    "Outcome",
    "Refused",
    "Request",
    "Revoke",
    "TimeToLive",
    "Watch",
    "Watched",
]


class Compact(msgspec.Struct, frozen=True):
    at: int


class Grant(msgspec.Struct, frozen=True):
    id: int
    ttl_s: int


class KeepAlive(msgspec.Struct, frozen=True):
    id: int


class Revoke(msgspec.Struct, frozen=True):
    id: int


class TimeToLive(msgspec.Struct, frozen=True):
    id: int
    keys: bool = True


class Leases(msgspec.Struct, frozen=True):
    pass


class Watch(msgspec.Struct, frozen=True):
    keys: Keys
    after: int
    puts: bool = True
    deletes: bool = True
    prev_kv: bool = False


Request: TypeAlias = (
    Range | Put | Delete | Txn | Compact | Grant | KeepAlive | Revoke | TimeToLive | Leases
)


class Done(msgspec.Struct, frozen=True):
    """Compacted or revoked; `revision` is None where the store's answer does not carry one."""

    revision: int | None


class Granted(msgspec.Struct, frozen=True):
    id: int
    ttl_s: float


class LeaseKeys(msgspec.Struct, frozen=True):
    id: int
    ttl_s: float
    remaining_s: float
    keys: tuple[bytes, ...]


class LeasesHeld(msgspec.Struct, frozen=True):
    ids: tuple[int, ...]


class Refused(msgspec.Struct, frozen=True):
    """The request was refused; `text` is for the reader, only `kind` is compared."""

    kind: type[QuoracyError]
    text: str


Answer: TypeAlias = (
    RangeResult | PutResult | DeleteResult | TxnResult | Done | Granted | LeaseKeys | LeasesHeld
)
Outcome: TypeAlias = Answer | Refused


class Watched(msgspec.Struct, frozen=True):
    """What a watch delivered, or the oldest revision kept if its start was compacted."""

    batches: tuple[tuple[int, tuple[Event, ...]], ...]
    compacted_to: int | None = None
