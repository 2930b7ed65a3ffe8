"""Keys and events: package mvccpb of etcd's api/mvccpb/kv.proto."""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated

from quoracy.wire.protobuf import INT64, Field, Message

__all__ = [
    "Event",
    "EventType",
    "KeyValue",
]


class KeyValue(Message, kw_only=True):
    """A version of a key: its value, its lease and its revisions."""

    key: Annotated[bytes, Field(1)] = b""
    create_revision: Annotated[int, Field(2, INT64)] = 0
    mod_revision: Annotated[int, Field(3, INT64)] = 0
    version: Annotated[int, Field(4, INT64)] = 0
    value: Annotated[bytes, Field(5)] = b""
    lease: Annotated[int, Field(6, INT64)] = 0


class EventType(IntEnum):
    """The type of an event."""

    PUT = 0
    DELETE = 1


class Event(Message, kw_only=True):
    """One change of one key.  The `kv` of a deletion has only the key and `mod_revision`."""

    type: Annotated[EventType | int, Field(1)] = EventType.PUT
    kv: Annotated[KeyValue | None, Field(2)] = None
    prev_kv: Annotated[KeyValue | None, Field(3)] = None
