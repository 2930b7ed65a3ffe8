"""Transactions of the plainest kind, from bytes to the store's values and back without messages.

A lock is two of them, a put if nobody is there and a delete if it is ours, and so is nearly every
compare-and-swap: conditions on versions or revisions, puts and deletes of single keys.  What is not of
that shape, or breaks a rule, is left to `translate`, which knows every shape and what etcd says of each
fault.  Fields may come in any order on the wire; every known encoder writes them in ascending order,
and nothing else is plain here.

Measured for the two transactions of a lock, with a session, a store in memory and no socket: a cycle
takes 37 us of processor instead of 51, of which 12 are the measurement's own.
"""

from __future__ import annotations

from collections.abc import Callable

from quoracy.faces.etcd.methods import Ahead, Done
from quoracy.faces.etcd.services.header import Headers
from quoracy.store.completion import Reply
from quoracy.store.legacy import Begins, RepliesAhead
from quoracy.store.model import (
    Compare,
    CompareTarget,
    Delete,
    DeleteResult,
    KeyRange,
    Keys,
    Op,
    Put,
    PutResult,
    Relation,
    Txn,
    TxnResult,
)
from quoracy.wire.protobuf.plain import NotPlain, plain_varint
from quoracy.wire.protobuf.primitives import int64

__all__ = ["QuickTxns", "answer_of", "txn_of"]

# Tags: the field's number and how it is written.
_COMPARE, _SUCCESS, _FAILURE = 0x0A, 0x12, 0x1A
_PUT, _DELETE = 0x12, 0x1A
_RESULT, _TARGET, _COMPARED_KEY = 0x08, 0x10, 0x1A
_VERSION, _CREATE_REVISION, _MOD_REVISION = 0x20, 0x28, 0x30
_RANGE_END = 0x82  # and 0x04: its number is 64
_KEY, _VALUE, _LEASE = 0x0A, 0x12, 0x18

_INT64_END = 1 << 63
_RELATIONS = (Relation.EQUAL, Relation.GREATER, Relation.LESS, Relation.NOT_EQUAL)
_TARGETS = (CompareTarget.VERSION, CompareTarget.CREATE, CompareTarget.MOD)
_EVERYTHING_FROM = b"\0"


class QuickTxns:
    """Begins plain transactions on a store in this process."""

    def __init__(
        self, store: Begins, headers: Headers, *, request_bytes_max: int, ops_max: int
    ) -> None:
        self._begin: Callable[..., bool] = store.begin
        self._begin_replying: Callable[..., bool] | None = (
            store.begin_replying if isinstance(store, RepliesAhead) else None
        )
        self._encoded: Callable[[int], bytes] = headers.encoded
        self._bytes_max, self._ops_max = request_bytes_max, ops_max

    def begin(self, payload: bytes, done: Done, ahead: Ahead | None = None) -> bool:
        """`Unary.quick`: False, having done nothing, for what is not plain."""
        if len(payload) > self._bytes_max:  # what is in it is less
            return False
        txn = txn_of(payload, self._ops_max)
        if txn is None:
            return False

        def on_done(result: TxnResult | None, error: BaseException | None) -> None:
            if result is None:
                done(None, error)
            else:
                done(self._encoded(result.revision) + answer_of(result), None)

        if ahead is None or self._begin_replying is None:
            return self._begin(txn, on_done)
        reply = ahead

        def make_reply(result: TxnResult) -> Reply | None:
            return reply(self._encoded(result.revision) + answer_of(result))

        return self._begin_replying(txn, on_done, make_reply)


# -- requests --------------------------------------------------------------------------------


def txn_of(data: bytes, ops_max: int) -> Txn | None:
    """The transaction of an encoded `TxnRequest`, if it is plain and keeps to the rules."""
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
            length, pos = plain_varint(data, pos + 1)
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
    except (IndexError, NotPlain):
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
            raise NotPlain
        last = tag
        if tag == _RANGE_END:
            if data[pos + 1] != 0x04:
                raise NotPlain
            pos += 1
        number, pos = plain_varint(data, pos + 1)
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
        elif tag == _VERSION + 8 * target and tag <= _MOD_REVISION and number < _INT64_END:
            operand = number
        else:
            raise NotPlain
    if pos != end or not key or relation > 3 or target > 2:
        raise NotPlain
    keys: Keys = key
    if range_end:
        keys = KeyRange(key, None if range_end == _EVERYTHING_FROM else range_end)
    return Compare(keys, _TARGETS[target], _RELATIONS[relation], operand)


def _op(data: bytes, pos: int, end: int) -> Op:
    kind = data[pos]
    length, pos = plain_varint(data, pos + 1)
    if pos + length != end:
        raise NotPlain
    key = value = b""
    lease = last = 0
    while pos < end:
        tag = data[pos]
        if tag <= last or (tag != _KEY and kind == _DELETE):
            raise NotPlain
        last = tag
        number, pos = plain_varint(data, pos + 1)
        if tag == _KEY:
            key = data[pos : pos + number]
            pos += number
        elif tag == _VALUE:
            value = data[pos : pos + number]
            pos += number
        elif tag == _LEASE and number < _INT64_END:
            lease = number
        else:
            raise NotPlain
    if pos != end or not key:  # a length that leads out of it, or a fault
        raise NotPlain
    if kind == _PUT:
        return Put(key, value, lease)
    if kind == _DELETE:
        return Delete(key)
    raise NotPlain


# -- answers ---------------------------------------------------------------------------------


def answer_of(result: TxnResult) -> bytes:
    """A `TxnResponse` to what was plain, encoded, without its header."""
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
