"""Jute, the encoding of ZooKeeper's records: big-endian numbers, counted bytes, counted vectors.

A record is its fields one after another, without names or tags.  A buffer or a string is a 4-byte
length and its bytes; the length -1 is null.  A vector is a 4-byte count and its elements; -1 is null.

Invariants
    * Whatever the bytes, reading them raises nothing but JuteError (in `requests`, which turns the
      errors of `struct` into it) and allocates no more than a constant times what was received: a
      count is checked against the bytes that are left before anything is built.
    * Text stays bytes where the server may store it (paths).  Where it is only compared (schemes and
      ids), malformed UTF-8 becomes U+FFFD, as in Java.
    * Equal ACL lists of one encoding are one tuple, kept in a cache with a bound.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from quoracy.errors import ProtocolError
from quoracy.wire.zookeeper.records import Acl

__all__ = ["ACL_CACHE_MAX", "INT", "LONG", "JuteError", "Reader", "acl_at", "int_at", "known_acl"]


class JuteError(ProtocolError):
    """Bytes that are not the record, or not the frame, they should be."""


INT: Final = Struct(">i")
LONG: Final = Struct(">q")


def int_at(data: bytes, at: int) -> int:
    """A 4-byte number.  Raises IndexError at the end of the data.

    Compiled, a third of what `INT.unpack_from` takes, which hands over a tuple of an object.
    """
    number = data[at] << 24 | data[at + 1] << 16 | data[at + 2] << 8 | data[at + 3]
    return number - 0x1_0000_0000 if number > 0x7FFF_FFFF else number


_ACL_BYTES_MIN: Final = 12  # the permissions and two lengths

# ZooKeeper looks into the ids of these schemes; a null there makes it answer with a marshalling error.
_SCHEMES_WITH_ID: Final = frozenset({"world", "digest", "ip"})

# Nearly every create carries one of a few lists.  When the cache is full it is emptied: whoever sends
# ever new lists pays for parsing them, and nobody for looking for the oldest.
ACL_CACHE_MAX: Final = 1024
_ACL_CACHED_BYTES_MAX: Final = 256
_acl_cache: dict[bytes, tuple[Acl, ...]] = {}


class Reader:
    """Fields of a record in order, for the requests that are too rare to be worth more code."""

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
    """The list that `raw` encodes, if it was read before; no prefix of `raw` is a list then."""
    return _acl_cache.get(raw)


def acl_at(frame: bytes, at: int) -> tuple[tuple[Acl, ...], int]:
    """The list of ACL entries at `at`, and where it ends; remembered by its bytes.

    No list (null), an empty one and a negative count are all empty: ZooKeeper answers them alike.
    """
    (count,) = INT.unpack_from(frame, at)
    if count == 1:  # as nearly always, and then its end can be found without reading it
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
