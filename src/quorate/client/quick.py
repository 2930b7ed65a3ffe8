"""The two answers that a node reads thousands of times a second, read without what nobody looks at.

`wire.etcd` decodes every field into a message.  Of the answer to a put only the revision is wanted, of
a watch's message only the events, and those as values of the store.  What is not of the plain shape is
left to `wire.etcd`: None says so.  Fields may come in any order there; etcd writes them in ascending
order, and nothing else is plain here.

Measured: 2.6 us instead of 5.1 for a message with one event, 1.2 instead of 2.1 for a put's answer.
"""

from __future__ import annotations

from quorate.store.model import Event, KeyValue

__all__ = ["put_revision", "watch_events"]

# Tags: the field's number and how it is written.
_HEADER, _WATCH_ID, _EVENT = 0x0A, 0x10, 0x5A
_CLUSTER_ID, _MEMBER_ID, _REVISION = 0x08, 0x10, 0x18
_TYPE, _KV = 0x08, 0x12
_KEY, _CREATE, _MOD, _VERSION, _VALUE, _LEASE = 0x0A, 0x10, 0x18, 0x20, 0x2A, 0x30


def put_revision(data: bytes) -> int | None:
    """The revision of an answer that has a header and nothing else."""
    try:
        if data[0] != _HEADER or data[1] != len(data) - 2:
            return None
        pos = 2
        for tag in (_CLUSTER_ID, _MEMBER_ID):
            if data[pos] == tag:
                pos += 1
                while data[pos] >= 0x80:
                    pos += 1
                pos += 1
        if data[pos] != _REVISION:
            return None
        return _varint(data, pos + 1)[0]
    except IndexError:
        return None


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
            watch_id, pos = _varint(data, pos + 1)
            if watch_id >= 1 << 63:  # a negative number: news of all watches
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
    except IndexError:
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
    if pos + length != end:  # a previous version comes behind it
        return None
    key = value = b""
    create = mod = version = lease = 0
    last = 0
    while pos < end:
        tag = data[pos]
        if tag <= last:  # given twice, or out of order
            return None
        last = tag
        number, pos = _varint(data, pos + 1)
        if tag == _KEY:
            key = data[pos : pos + number]
            pos += number
        elif tag == _VALUE:
            value = data[pos : pos + number]
            pos += number
        elif number >= 1 << 63:
            return None
        elif tag == _MOD:
            mod = number
        elif tag == _CREATE:
            create = number
        elif tag == _VERSION:
            version = number
        elif tag == _LEASE:
            lease = number
        else:
            return None
    if pos != end:  # a length that leads out of the event
        return None
    if deleted:
        return Event(KeyValue(key, b"", 0, mod, 0))
    return Event(KeyValue(key, value, create, mod, version, lease))


def _varint(data: bytes, pos: int) -> tuple[int, int]:
    """The number at a position, and the position behind it."""
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
            raise IndexError("longer than any number that is sent")
