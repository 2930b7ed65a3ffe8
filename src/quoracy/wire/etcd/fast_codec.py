"""The messages that come thousands of times a second, between bytes and values of the store directly.

The general codec (`wire.etcd.rpc`, then `translate` on either side) makes a message of every part.
Here the few shapes that nearly every message has are read and written without them:

    a Txn of conditions on versions or revisions, and of puts and deletes of single keys (a lock is two
    of these), and its answer; the answer to a put; what a read of little found; events of a watch

What is not of such a shape, or is wrong, is left to the general codec: None says so, and that finds the
words for what is wrong.  Fields may come in any order on the wire; every known encoder writes them in
ascending order, and no other order is read here.  `tests/properties/test_fast_codec.py` holds both
codecs equal.
"""

from __future__ import annotations

from typing import Final

from quoracy.store.model import (
    Compare,
    CompareTarget,
    Delete,
    DeleteResult,
    Event,
    KeyRange,
    Keys,
    KeyValue,
    Op,
    OpResult,
    Put,
    PutResult,
    RangeResult,
    Relation,
    Revision,
    Txn,
    TxnResult,
)
from quoracy.wire.protobuf.primitives import int64

__all__ = [
    "decode_put_revision",
    "decode_range_result",
    "decode_txn",
    "decode_txn_result",
    "decode_watch_events",
    "encode_txn_result",
]

_INT64_END: Final = 1 << 63
# A range of more than this is as fast by way of messages.
_RANGE_BYTES_MAX: Final = 512


class _OtherShape(Exception):
    """Not of the shape that is read here."""


def _varint(data: bytes, pos: int) -> tuple[int, int]:
    """The number at a position, and the position after it.  IndexError where the data ends."""
    byte = data[pos]
    if byte < 0x80:
        return byte, pos + 1
    number, shift = byte & 0x7F, 7
    while True:
        pos += 1
        byte = data[pos]
        if byte < 0x80:
            return number | byte << shift, pos + 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if shift > 63:
            raise _OtherShape  # longer than any number that is sent


# -- requests.  Tags: the field's number and how it is written. -------------------------------

_COMPARE, _SUCCESS, _FAILURE = 0x0A, 0x12, 0x1A
_PUT_REQUEST, _DELETE_REQUEST = 0x12, 0x1A
_RESULT, _TARGET, _COMPARED_KEY = 0x08, 0x10, 0x1A
_COMPARED_VERSION, _COMPARED_MOD = 0x20, 0x30
_RANGE_END = 0x82  # and 0x04: its number is 64
_PUT_KEY, _PUT_VALUE, _PUT_LEASE = 0x0A, 0x12, 0x18

_RELATIONS: Final = (Relation.EQUAL, Relation.GREATER, Relation.LESS, Relation.NOT_EQUAL)
_TARGETS: Final = (CompareTarget.VERSION, CompareTarget.CREATE, CompareTarget.MOD)
_EVERYTHING_FROM: Final = b"\0"


def decode_txn(data: bytes, ops_max: int) -> Txn | None:
    """The transaction of an encoded `TxnRequest`, if it is of the shape and keeps to the rules."""
    compares: list[Compare] = []
    then: list[Op] = []
    otherwise: list[Op] = []
    pos, size, last = 0, len(data), 0
    try:
        while pos < size:
            tag = data[pos]
            if tag < last:
                return None
            last = tag
            length, pos = _varint(data, pos + 1)
            end = pos + length
            if end > size:
                return None
            if tag == _COMPARE:
                compares.append(_compare(data, pos, end))
            elif tag == _SUCCESS:
                then.append(_op(data, pos, end))
            elif tag == _FAILURE:
                otherwise.append(_op(data, pos, end))
            else:
                return None
            pos = end
    except (IndexError, _OtherShape):
        return None
    if len(compares) > ops_max or len(then) > ops_max or len(otherwise) > ops_max:
        return None
    return Txn(tuple(compares), tuple(then), tuple(otherwise))


def _compare(data: bytes, pos: int, end: int) -> Compare:
    relation = target = operand = 0
    key = range_end = b""
    last = 0
    while pos < end:
        tag = data[pos]
        if tag <= last:
            raise _OtherShape
        last = tag
        if tag == _RANGE_END:
            if data[pos + 1] != 0x04:
                raise _OtherShape
            pos += 1
        number, pos = _varint(data, pos + 1)
        if tag == _COMPARED_KEY:
            key = data[pos : pos + number]
            pos += number
        elif tag == _RANGE_END:
            range_end = data[pos : pos + number]
            pos += number
        elif tag == _RESULT:
            relation = number
        elif tag == _TARGET:
            target = number
        elif tag == _COMPARED_VERSION + 8 * target and tag <= _COMPARED_MOD and number < _INT64_END:
            operand = number
        else:
            raise _OtherShape
    if pos != end or not key or relation > 3 or target > 2:
        raise _OtherShape
    keys: Keys = key
    if range_end:
        keys = KeyRange(key, None if range_end == _EVERYTHING_FROM else range_end)
    return Compare(keys, _TARGETS[target], _RELATIONS[relation], operand)


def _op(data: bytes, pos: int, end: int) -> Op:
    kind = data[pos]
    length, pos = _varint(data, pos + 1)
    if pos + length != end:
        raise _OtherShape
    key = value = b""
    lease = last = 0
    while pos < end:
        tag = data[pos]
        if tag <= last or (tag != _PUT_KEY and kind == _DELETE_REQUEST):
            raise _OtherShape
        last = tag
        number, pos = _varint(data, pos + 1)
        if tag == _PUT_KEY:
            key = data[pos : pos + number]
            pos += number
        elif tag == _PUT_VALUE:
            value = data[pos : pos + number]
            pos += number
        elif tag == _PUT_LEASE and number < _INT64_END:
            lease = number
        else:
            raise _OtherShape
    if pos != end or not key:  # a length that leads out of it, or a fault
        raise _OtherShape
    if kind == _PUT_REQUEST:
        return Put(key, value, lease)
    if kind == _DELETE_REQUEST:
        return Delete(key)
    raise _OtherShape


# -- answers ---------------------------------------------------------------------------------

_HEADER, _WATCH_ID, _EVENT = 0x0A, 0x10, 0x5A
_CLUSTER_ID, _MEMBER_ID, _REVISION, _RAFT_TERM = 0x08, 0x10, 0x18, 0x20
_TYPE, _KV = 0x08, 0x12
_KEY, _CREATE, _MOD, _VERSION, _VALUE, _LEASE = 0x0A, 0x10, 0x18, 0x20, 0x2A, 0x30
_KVS, _MORE, _COUNT = 0x12, 0x18, 0x20
_SUCCEEDED, _RESPONSE = 0x10, 0x1A
_RANGE, _PUT, _DELETE = 0x0A, 0x12, 0x1A
_DELETED = 0x10

# The cluster and the member of the header read last, as they are written: nearly always the same again.
_ids = b""


def encode_txn_result(result: TxnResult) -> bytes:
    """The `TxnResponse` to a transaction that `decode_txn` read, without its header."""
    answer = b"\x10\x01" if result.succeeded else b""
    for each in result.results:
        # Inside a transaction a header has the revision only.
        revision = int64(each.revision)
        header = b"\x0a%c\x18" % (len(revision) + 1) + revision
        if isinstance(each, PutResult):
            answer += b"\x1a%c\x12%c" % (len(header) + 2, len(header)) + header
        else:
            assert isinstance(each, DeleteResult), "it has puts and deletes only"
            if each.deleted:
                header += b"\x10" + int64(each.deleted)
            answer += b"\x1a%c\x1a%c" % (len(header) + 2, len(header)) + header
    return answer


def decode_put_revision(data: bytes) -> int | None:
    """The revision of an answer that has a header and nothing else."""
    try:
        revision, pos = _header(data)
    except (IndexError, _OtherShape):
        return None
    return revision if pos == len(data) else None


def decode_range_result(data: bytes) -> RangeResult | None:
    """What a read found, if that is little."""
    if len(data) > _RANGE_BYTES_MAX:
        return None
    try:
        revision, pos = _header(data)
        return _range(data, pos, len(data), Revision(revision))
    except (IndexError, _OtherShape):
        return None


def decode_txn_result(data: bytes) -> TxnResult | None:
    """The result of a transaction that has no others inside, and wants no previous versions."""
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
            length, pos = _varint(data, pos + 1)
            end = pos + length
            if end > size:
                return None
            results.append(_op_result(data, pos, end, revision))
            pos = end
        return TxnResult(revision, succeeded, tuple(results))
    except (IndexError, _OtherShape):
        return None


def _op_result(data: bytes, pos: int, end: int, revision: Revision) -> OpResult:
    tag = data[pos]
    length, pos = _varint(data, pos + 1)
    if pos + length != end:
        raise _OtherShape
    if pos < end and data[pos] == _HEADER:  # of the same revision, or of none: see `translate`
        pos = _behind_header(data, pos)
    if tag == _PUT:
        if pos != end:
            raise _OtherShape
        return PutResult(revision)
    if tag == _DELETE:
        deleted = 0
        if pos < end and data[pos] == _DELETED:
            deleted, pos = _varint(data, pos + 1)
        if pos != end or deleted >= _INT64_END:
            raise _OtherShape
        return DeleteResult(revision, deleted)
    if tag == _RANGE:
        return _range(data, pos, end, revision)
    raise _OtherShape


def _range(data: bytes, pos: int, end: int, revision: Revision) -> RangeResult:
    kvs: list[KeyValue] = []
    more, count = False, 0
    while pos < end and data[pos] == _KVS:
        length, pos = _varint(data, pos + 1)
        if pos + length > end:
            raise _OtherShape
        kvs.append(_key_value(data, pos, pos + length))
        pos += length
    if pos < end and data[pos] == _MORE:
        if data[pos + 1] != 1:
            raise _OtherShape
        more = True
        pos += 2
    if pos < end and data[pos] == _COUNT:
        count, pos = _varint(data, pos + 1)
    if pos != end or count >= _INT64_END:
        raise _OtherShape
    return RangeResult(revision, tuple(kvs), count, more)


def _header(data: bytes) -> tuple[int, int]:
    """The revision of the header that a message begins with, and the position behind it."""
    global _ids  # noqa: PLW0603 (which says nothing about any answer but how its header begins)
    if data[0] != _HEADER or data[1] >= 0x80:
        raise _OtherShape
    end = 2 + data[1]
    if end > len(data):
        raise _OtherShape
    ids = _ids
    pos = 2 + len(ids)
    if data[2:pos] != ids or data[pos] != _REVISION:
        pos = 2
        for tag in (_CLUSTER_ID, _MEMBER_ID):
            if data[pos] == tag:
                pos = _varint(data, pos + 1)[1]
        _ids = data[2:pos]
    if data[pos] != _REVISION:
        raise _OtherShape
    revision, pos = _varint(data, pos + 1)
    if pos < end and data[pos] == _RAFT_TERM:
        pos = _varint(data, pos + 1)[1]
    if pos != end or revision >= _INT64_END:
        raise _OtherShape
    return revision, pos


def _behind_header(data: bytes, pos: int) -> int:
    """The position behind a header of which nothing is wanted; it must be one all the same."""
    end = pos + 2 + data[pos + 1]
    if data[pos + 1] >= 0x80:
        raise _OtherShape
    pos += 2
    last = 0
    while pos < end:
        tag = data[pos]
        if tag not in _HEADER_TAGS or tag <= last:
            raise _OtherShape
        last = tag
        pos = _varint(data, pos + 1)[1]
    if pos != end:
        raise _OtherShape
    return pos


_HEADER_TAGS = frozenset((_CLUSTER_ID, _MEMBER_ID, _REVISION, _RAFT_TERM))


def decode_watch_events(data: bytes) -> tuple[int, list[Event]] | None:
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
            watch_id, pos = _varint(data, pos + 1)
            if watch_id >= _INT64_END:  # a negative number: news of all watches
                return None
        events: list[Event] = []
        while pos < size:
            if data[pos] != _EVENT:
                return None
            length, pos = _varint(data, pos + 1)
            if pos + length > size:
                return None
            event = _event(data, pos, pos + length)
            if event is None:
                return None
            events.append(event)
            pos += length
        return (watch_id, events) if events else None
    except (IndexError, _OtherShape):
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
    length, pos = _varint(data, pos + 1)
    if pos + length != end:  # a previous version follows
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
            raise _OtherShape
        last = tag
        number, pos = _varint(data, pos + 1)
        if tag == _KEY:
            key = data[pos : pos + number]
            pos += number
        elif tag == _VALUE:
            value = data[pos : pos + number]
            pos += number
        elif number >= _INT64_END:
            raise _OtherShape
        elif tag == _MOD:
            mod = number
        elif tag == _CREATE:
            create = number
        elif tag == _VERSION:
            version = number
        elif tag == _LEASE:
            lease = number
        else:
            raise _OtherShape
    if pos != end:  # a length that leads out of it
        raise _OtherShape
    return KeyValue(key, value, create, mod, version, lease)
