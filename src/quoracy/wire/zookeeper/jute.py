"""Jute, the encoding of ZooKeeper's records, and the frames that records travel in.

A record is its fields one after another, without names or tags; numbers are big-endian.  A buffer or a
string is a 4-byte length and its bytes; the length -1 means null.  A vector is a 4-byte count and its
elements; -1 means null.  A frame is a 4-byte length and that many bytes.

Invariants
    * Whatever the bytes, reading a request raises only JuteError (`requests` turns the errors of
      `struct` into it) and allocates at most a constant times what was received: a count is checked
      against the bytes that are left before anything is built.
    * Text that the server may store (paths) stays bytes.  In text that is only compared (schemes and
      ids), malformed UTF-8 becomes U+FFFD, as in Java.
    * Equal ACL lists of one encoding are one tuple, kept in a bounded cache.
    * The frames of a stream do not depend on how the stream was cut into pieces.  A byte is copied a
      constant number of times, however small the pieces.  At most one frame and one piece are kept.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from quoracy.errors import ProtocolError
from quoracy.wire.zookeeper.records import Acl

__all__ = [
    "ACL_CACHE_MAX",
    "INT",
    "LONG",
    "FrameLengthError",
    "FrameSplitter",
    "JuteError",
    "Reader",
    "acl_at",
    "int_at",
    "known_acl",
]


class JuteError(ProtocolError):
    """Bytes that are not a well-formed record or frame."""


INT: Final = Struct(">i")
LONG: Final = Struct(">q")


def int_at(data: bytes, at: int) -> int:
    """The 4-byte number at a position.  Raises IndexError if the data ends before it does."""
    # Compiled, this makes no objects; `INT.unpack_from` makes a tuple.
    number = data[at] << 24 | data[at + 1] << 16 | data[at + 2] << 8 | data[at + 3]
    return number - 0x1_0000_0000 if number > 0x7FFF_FFFF else number


_ACL_BYTES_MIN: Final = 12  # the permissions and two lengths

# ZooKeeper parses the ids of these schemes and answers a null one with a marshalling error.
_SCHEMES_WITH_ID: Final = frozenset({"world", "digest", "ip"})

# Nearly every create carries one of a few lists.  A full cache is emptied, so that no bookkeeping of
# ages is needed: only clients that send new lists all the time pay, for parsing them.
ACL_CACHE_MAX: Final = 1024
_ACL_CACHED_BYTES_MAX: Final = 256
_acl_cache: dict[bytes, tuple[Acl, ...]] = {}


class Reader:
    """Reads the fields of a record in order: for requests that are too rare for code of their own."""

    __slots__ = ("at", "frame")

    def __init__(self, frame: bytes, at: int) -> None:
        self.frame, self.at = frame, at

    def read_int(self) -> int:
        (number,) = INT.unpack_from(self.frame, self.at)
        self.at += 4
        return number  # type: ignore[no-any-return]

    def read_long(self) -> int:
        (number,) = LONG.unpack_from(self.frame, self.at)
        self.at += 8
        return number  # type: ignore[no-any-return]

    def read_buffer(self) -> bytes | None:
        """A buffer or a string, as bytes; None for null."""
        size = self.read_int()
        if size < 0:
            if size == -1:
                return None
            raise JuteError(f"a field has length {size}; only -1, for null, may be negative")
        start, self.at = self.at, self.at + size
        if self.at > len(self.frame):
            raise JuteError(f"a field of {size:,} bytes runs past the end of its frame")
        return self.frame[start : self.at]

    def read_path(self) -> bytes:
        """A string that may not be null."""
        path = self.read_buffer()
        if path is None:
            raise JuteError("the path of a request is null; send at least '/'")
        return path

    def read_text(self) -> str | None:
        text = self.read_buffer()
        return None if text is None else text.decode("utf-8", "replace")

    def read_paths(self, *, null_allowed: bool = False) -> tuple[bytes, ...]:
        """A vector of strings.  A null one among them is an error or, if allowed, the empty path."""
        count = self.read_int()
        if count == -1:
            raise JuteError("a list of paths is null; send an empty one")
        frame, at = self.frame, self.at
        limit = len(frame)
        if count > (limit - at) // 4:
            raise JuteError(f"a list of {count:,} paths does not fit into its frame")
        paths = []
        for _ in range(count):  # a negative count is an empty list, as in Java
            (size,) = INT.unpack_from(frame, at)
            at += 4
            if size < 0:
                if size != -1 or not null_allowed:
                    raise JuteError(f"a path in a list has length {size}; leave it out")
                size = 0
            end = at + size
            if end > limit:
                raise JuteError(f"a path of {size:,} bytes runs past the end of its frame")
            paths.append(frame[at:end])
            at = end
        self.at = at
        return tuple(paths)

    def read_acl(self) -> tuple[Acl, ...]:
        acl, self.at = acl_at(self.frame, self.at)
        return acl


def known_acl(raw: bytes) -> tuple[Acl, ...] | None:
    """The ACL list that `raw` encodes, if it is in the cache; then no prefix of `raw` is a list."""
    return _acl_cache.get(raw)


def acl_at(frame: bytes, at: int) -> tuple[tuple[Acl, ...], int]:
    """The ACL list at `at`, and the position after it; cached by its bytes.

    A null list and a negative count are empty lists: ZooKeeper answers all of them alike.
    """
    (count,) = INT.unpack_from(frame, at)
    if count == 1:  # the usual case: the end can be found without reading the entry
        (scheme_size,) = INT.unpack_from(frame, at + 8)
        if scheme_size >= 0:
            (id_size,) = INT.unpack_from(frame, at + 12 + scheme_size)
            end = at + 16 + scheme_size + max(id_size, 0)
            acl = _acl_cache.get(frame[at:end])
            if acl is not None:
                return acl, end
    acl, end = _read_acl(frame, at)
    if end - at <= _ACL_CACHED_BYTES_MAX:
        if len(_acl_cache) >= ACL_CACHE_MAX:
            _acl_cache.clear()
        _acl_cache[frame[at:end]] = acl
    return acl, end


def _read_acl(frame: bytes, at: int) -> tuple[tuple[Acl, ...], int]:
    reader = Reader(frame, at)
    count = reader.read_int()
    if count > (len(frame) - reader.at) // _ACL_BYTES_MIN:
        raise JuteError(f"a list of {count:,} ACL entries does not fit into its frame")
    entries = []
    for _ in range(count):
        perms, scheme, id_ = reader.read_int(), reader.read_text(), reader.read_text()
        if id_ is None and scheme in _SCHEMES_WITH_ID:
            raise JuteError(f"the id of a {scheme} ACL entry is null")
        entries.append(Acl(perms, scheme or "", id_ or ""))
    return tuple(entries), reader.at


class FrameLengthError(JuteError):
    """A frame announces a length that is refused.  `frames` are the complete ones before it."""

    def __init__(self, length: int, max_bytes: int, frames: list[bytes]) -> None:
        super().__init__(
            f"a frame announces {length:,} bytes; from 0 to {max_bytes:,} are allowed. "
            "Send less at a time, or raise jute.maxbuffer on both sides."
        )
        self.length, self.frames = length, frames


class FrameSplitter:
    """Cuts what a connection receives into frames.

    A length that is negative or over `max_bytes` ends the stream, before and after the connect
    request alike; 0 is a legal length, though no legal request.  The four letter words that a
    client may send instead of a connect request look like lengths that are far too large: a caller
    that serves them looks at the first four bytes before it feeds them here.
    """

    __slots__ = ("_max_bytes", "_needed", "_rest")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._rest = bytearray()
        self._needed = 4  # bytes that must be in `_rest` before a frame can be completed

    @property
    def rest_bytes(self) -> int:
        """How many bytes of an incomplete frame are kept."""
        return len(self._rest)

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that `data` completes, without their lengths.

        Raises FrameLengthError, which carries the frames before it, at a length that is refused; and
        again for all later data, because the start of the next frame cannot be known.
        """
        if self._rest:
            self._rest += data
            if len(self._rest) < self._needed:
                return []
            data = bytes(self._rest)
            self._rest.clear()
        frames: list[bytes] = []
        start, size = 0, len(data)
        while size - start >= 4:
            length = int_at(data, start)
            if not 0 <= length <= self._max_bytes:
                # The refused length is kept at the start, so any later piece is refused too.
                self._rest, self._needed = bytearray(data[start : start + 4]), 4
                raise FrameLengthError(length, self._max_bytes, frames)
            end = start + 4 + length
            if end > size:
                self._rest, self._needed = bytearray(data[start:]), 4 + length
                return frames
            frames.append(data[start + 4 : end])
            start = end
        if start < size:
            self._rest, self._needed = bytearray(data[start:]), 4
        return frames
