"""Protocol buffers: the part of proto3 that etcd's API uses, as classes with fields."""

from quoracy.wire.protobuf.fields import (
    BOOL,
    BYTES,
    ENUM,
    INT32,
    INT64,
    MESSAGE,
    STRING,
    UINT32,
    UINT64,
    Field,
    FieldSpec,
    Kind,
    fields_of,
)
from quoracy.wire.protobuf.message import Message

__all__ = [
    "BOOL",
    "BYTES",
    "ENUM",
    "INT32",
    "INT64",
    "MESSAGE",
    "STRING",
    "UINT32",
    "UINT64",
    "Field",
    "FieldSpec",
    "Kind",
    "Message",
    "fields_of",
]
