"""Common answers, read straight from the bytes into values of the store.

`wire.etcd` decodes every field into a message, and `translate` makes values of that.  A second way for
the answers that come thousands of times a second; it takes about half of the time.  What is not of the
common shape is left to those two: None says so.  etcd writes fields in ascending order, and any other
order is not the common shape.
"""

from __future__ import annotations

from quoracy.remote import translate
from quoracy.store.model import (
    DeleteResult,
    Event,
    KeyValue,
    OpResult,
    PutResult,
    RangeResult,
    Revision,
    TxnResult,
)
from quoracy.wire.etcd import rpc
from quoracy.wire.protobuf.plain import NotPlain, plain_varint

__all__ = [
    "put_revision", "range_result", "read_put", "read_range", "read_txn", "txn_result", "watch_events",
]  # fmt: skip

# Tags: the field's number and how it is written.
_HEADER, _WATCH_ID, _EVENT = 0x0A, 0x10, 0x5A
_CLUSTER_ID, _MEMBER_ID, _REVISION, _RAFT_TERM = 0x08, 0x10, 0x18, 0x20
_TYPE, _KV = 0x08, 0x12
_KEY, _CREATE, _MOD, _VERSION, _VALUE, _LEASE = 0x0A, 0x10, 0x18, 0x20, 0x2A, 0x30
_KVS, _MORE, _COUNT = 0x12, 0x18, 0x20
_SUCCEEDED, _RESPONSE = 0x10, 0x1A
_RANGE, _PUT, _DELETE = 0x0A, 0x12, 0x1A
_DELETED = 0x10

_INT64_END = 1 << 63
_RANGE_BYTES_MAX = 512

# The cluster and the member of the last header, encoded: nearly always the same again.
_ids = b""


def read_put(data: bytes) -> PutResult:
    """The result of a put, plain or not.  Raises `ProtocolError`."""
    revision = put_revision(data)
    if revision is None:
        return translate.put_result(rpc.PutResponse.decode(data))
    return PutResult(Revision(revision))


def read_range(data: bytes) -> RangeResult:
    """The result of a read, plain or not.  Raises `ProtocolError`."""
    return range_result(data) or translate.range_result(rpc.RangeResponse.decode(data))


def read_txn(data: bytes) -> TxnResult:
    """The result of a transaction, plain or not.  Raises `ProtocolError`."""
    return txn_result(data) or translate.txn_result(rpc.TxnResponse.decode(data))


def put_revision(data: bytes) -> int | None:
    """The revision of an answer that has a header and nothing else."""
    try:
        revision, pos = _header(data)
    except (IndexError, NotPlain):
        return None
    return revision if pos == len(data) else None


def range_result(data: bytes) -> RangeResult | None:
    """What a read found, if that is little: of many keys the full way is as fast."""
    if len(data) > _RANGE_BYTES_MAX:
        return None
    try:
        revision, pos = _header(data)
        return _range(data, pos, len(data), Revision(revision))
    except (IndexError, NotPlain):
        return None


def txn_result(data: bytes) -> TxnResult | None:
    """What became of a transaction that has no others inside, and wants no previous versions."""
    try:
        number, pos = _header(data)
        revision, size = Revision(number), len(data)
        succeeded = False
        if pos < size and data[pos] == _SUCCEEDED:
            if data[pos + 1] != 1:
                return None
            succeeded = True
            pos += 2
        results: list[OpResult] = []
        while pos < size:
            if data[pos] != _RESPONSE:
                return None
            length, pos = plain_varint(data, pos + 1)
            end = pos + length
            if end > size:
                return None
            results.append(_op_result(data, pos, end, revision))
            pos = end
        return TxnResult(revision, succeeded, tuple(results))
    except (IndexError, NotPlain):
        return None


def _op_result(data: bytes, pos: int, end: int, revision: Revision) -> OpResult:
    tag = data[pos]
    length, pos = plain_varint(data, pos + 1)
    if pos + length != end:
        raise NotPlain
    if pos < end and data[pos] == _HEADER:  # of the same revision, or of none: see `translate`
        pos = _behind_header(data, pos)
    if tag == _PUT:
        if pos != end:
            raise NotPlain
        return PutResult(revision)
    if tag == _DELETE:
        deleted = 0
        if pos < end and data[pos] == _DELETED:
            deleted, pos = plain_varint(data, pos + 1)
        if pos != end or deleted >= _INT64_END:
            raise NotPlain
        return DeleteResult(revision, deleted)
    if tag == _RANGE:
        return _range(data, pos, end, revision)
    raise NotPlain


def _range(data: bytes, pos: int, end: int, revision: Revision) -> RangeResult:
    kvs: list[KeyValue] = []
    more, count = False, 0
    while pos < end and data[pos] == _KVS:
        length, pos = plain_varint(data, pos + 1)
        if pos + length > end:
            raise NotPlain
        kvs.append(_key_value(data, pos, pos + length))
        pos += length
    if pos < end and data[pos] == _MORE:
        if data[pos + 1] != 1:
            raise NotPlain
        more = True
        pos += 2
    if pos < end and data[pos] == _COUNT:
        count, pos = plain_varint(data, pos + 1)
    if pos != end or count >= _INT64_END:
        raise NotPlain
    return RangeResult(revision, tuple(kvs), count, more)


def _header(data: bytes) -> tuple[int, int]:
    """The revision of the header that a message begins with, and the position behind it."""
    global _ids  # noqa: PLW0603 (which says nothing about any answer but how its header begins)
    if data[0] != _HEADER or data[1] >= 0x80:
        raise NotPlain
    end = 2 + data[1]
    if end > len(data):
        raise NotPlain
    ids = _ids
    pos = 2 + len(ids)
    if data[2:pos] != ids or data[pos] != _REVISION:
        pos = 2
        for tag in (_CLUSTER_ID, _MEMBER_ID):
            if data[pos] == tag:
                pos = plain_varint(data, pos + 1)[1]
        _ids = data[2:pos]
    if data[pos] != _REVISION:
        raise NotPlain
    revision, pos = plain_varint(data, pos + 1)
    if pos < end and data[pos] == _RAFT_TERM:
        pos = plain_varint(data, pos + 1)[1]
    if pos != end or revision >= _INT64_END:
        raise NotPlain
    return revision, pos


def _behind_header(data: bytes, pos: int) -> int:
    """The position behind a header of which nothing is wanted; it must be one all the same."""
    end = pos + 2 + data[pos + 1]
    if data[pos + 1] >= 0x80:
        raise NotPlain
    pos += 2
    last = 0
    while pos < end:
        tag = data[pos]
        if tag not in _HEADER_TAGS or tag <= last:
            raise NotPlain
        last = tag
        pos = plain_varint(data, pos + 1)[1]
    if pos != end:
        raise NotPlain
    return pos


_HEADER_TAGS = frozenset((_CLUSTER_ID, _MEMBER_ID, _REVISION, _RAFT_TERM))


def watch_events(data: bytes) -> tuple[int, list[Event]] | None:
    """The watch's number and its events, of a message that has no other news."""
    try:
        size = len(data)
        pos = 0
        if data[0] == _HEADER:
            if data[1] >= 0x80:
                return None
            pos = 2 + data[1]
        watch_id = 0
        if data[pos] == _WATCH_ID:
            watch_id, pos = plain_varint(data, pos + 1)
            if watch_id >= _INT64_END:  # a negative number: news of all watches
                return None
        events: list[Event] = []
        while pos < size:
            if data[pos] != _EVENT:
                return None
            length, pos = plain_varint(data, pos + 1)
            if pos + length > size:
                return None
            event = _event(data, pos, pos + length)
            if event is None:
                return None
            events.append(event)
            pos += length
        return (watch_id, events) if events else None
    except (IndexError, NotPlain):
        return None


def _event(data: bytes, pos: int, end: int) -> Event | None:
    deleted = False
    if data[pos] == _TYPE:
        if data[pos + 1] > 1:
            return None
        deleted = data[pos + 1] == 1
        pos += 2
    if data[pos] != _KV:
        return None
    length, pos = plain_varint(data, pos + 1)
    if pos + length != end:  # a previous version comes behind it
        return None
    kv = _key_value(data, pos, end)
    return Event(KeyValue(kv.key, b"", 0, kv.mod_revision, 0) if deleted else kv)


def _key_value(data: bytes, pos: int, end: int) -> KeyValue:
    key = value = b""
    create = mod = version = lease = 0
    last = 0
    while pos < end:
        tag = data[pos]
        if tag <= last:  # given twice, or out of order
            raise NotPlain
        last = tag
        number, pos = plain_varint(data, pos + 1)
        if tag == _KEY:
            key = data[pos : pos + number]
            pos += number
        elif tag == _VALUE:
            value = data[pos : pos + number]
            pos += number
        elif number >= _INT64_END:
            raise NotPlain
        elif tag == _MOD:
            mod = number
        elif tag == _CREATE:
            create = number
        elif tag == _VERSION:
            version = number
        elif tag == _LEASE:
            lease = number
        else:
            raise NotPlain
    if pos != end:  # a length that leads out of it
        raise NotPlain
    return KeyValue(key, value, create, mod, version, lease)
