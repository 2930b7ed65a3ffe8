"""Paths of znodes: which may be written, which are never deleted, and the parent of each.

ZooKeeper's server looks at a path only where it writes, and not everywhere alike; which check comes
first decides which error a client sees.  The rules of PrepRequestProcessor and PathUtils, in its order:

    create     `parent_for_create`, then the ACL, the parent and the parent's ACL, then `validate_path`
               of the whole path with its sequence number
    delete     `parent_for_delete`, then nothing more: a malformed path is just not there
    setData, setACL, check   `validate_path` first of all
    reads      nothing: what cannot exist is not there

Invariants
    * Paths are bytes.  A path that is not well-formed UTF-8 is never valid: a server in Java sees
      U+FFFD in it, which PathUtils forbids.
    * The root is b"/" inside; b"" names it too in requests, as in ZooKeeper's DataTree.
"""

from __future__ import annotations

import re
from typing import Final

from quoracy.wire.zookeeper.codes import Err

__all__ = [
    "CONFIG",
    "QUOTA",
    "QUOTA_LIMITS",
    "QUOTA_STATS",
    "ROOT",
    "ZOOKEEPER",
    "ZkError",
    "is_special",
    "is_valid",
    "is_valid_below",
    "parent_and_name",
    "parent_for_create",
    "parent_for_delete",
    "parent_of",
    "validate_path",
]


class ZkError(Exception):
    """The request is refused; nothing was changed.  `code` goes into the reply."""

    def __init__(self, code: Err) -> None:
        super().__init__(code.name)
        self.code = code


ROOT: Final = b"/"
ZOOKEEPER: Final = b"/zookeeper"
QUOTA: Final = b"/zookeeper/quota"
CONFIG: Final = b"/zookeeper/config"

# Below /zookeeper/quota/<path>: what was allowed, and what is there.
QUOTA_LIMITS: Final = b"zookeeper_limits"
QUOTA_STATS: Final = b"zookeeper_stats"

_SPECIAL: Final = frozenset({b"", ROOT, ZOOKEEPER, QUOTA, CONFIG})

# One name: UTF-8 of what PathUtils lets through.  That is no control character (up to U+001F, U+007F to
# U+009F), nothing from U+D800 to U+F8FF (so nothing outside the BMP either: Java sees a surrogate pair)
# and nothing from U+FFF0.  Every repetition is possessive: a match never backtracks, so a path of a
# megabyte costs one pass.  (No look-ahead refuses the names "." and "..": Python 3.11.2, as Debian 12
# has it, forgets about it within a possessive repetition.)
_VALID: Final = re.compile(
    rb"""/(?:
        (?: [\x20-\x2e\x30-\x7e]++
          | \xc2[\xa0-\xbf]                         # U+00A0 to U+00BF
          | [\xc3-\xdf][\x80-\xbf]                  # to U+07FF
          | \xe0[\xa0-\xbf][\x80-\xbf]              # to U+0FFF
          | [\xe1-\xec][\x80-\xbf]{2}               # to U+CFFF
          | \xed[\x80-\x9f][\x80-\xbf]              # to U+D7FF
          | \xef[\xa4-\xbe][\x80-\xbf]              # U+F900 to U+FFBF
          | \xef\xbf[\x80-\xaf]                     # to U+FFEF
        )++
        (?: / (?!\Z) | \Z)
    )*+""",
    re.VERBOSE,
).fullmatch
_find_dots: Final = re.compile(rb"/\.{1,2}(?:/|\Z)").search


# What a name of ASCII may have, as letters; and anything else as what is none.
_LETTERS: Final = bytes(0x61 if 0x20 <= byte <= 0x7E and byte != 0x2F else 0 for byte in range(256))


def is_valid_below(path: bytes, cut: int) -> bool:
    """`is_valid`, if what comes before its last slash, at `cut`, is known to be.

    Most names are ASCII, and quickly looked through.
    """
    name = path[cut + 1 :]
    if name.translate(_LETTERS).isalpha():
        return name not in (b".", b"..")
    return is_valid(path)


def is_valid(path: bytes) -> bool:
    """Whether a znode of this path may exist (PathUtils.validatePath)."""
    return _VALID(path) is not None and (b"/." not in path or _find_dots(path) is None)


def validate_path(path: bytes, sequential: bool = False) -> None:
    """Refuse a path no znode may have.  `sequential`: a number is still to be appended to it."""
    if not is_valid(path + b"1" if sequential else path):
        raise ZkError(Err.BAD_ARGUMENTS)


def parent_for_create(path: bytes) -> bytes:
    """The parent of a node to be created; the path itself is validated only once that was found."""
    cut = path.rfind(b"/")
    if cut == -1 or b"\x00" in path:
        raise ZkError(Err.BAD_ARGUMENTS)
    return path[:cut] or ROOT


def parent_for_delete(path: bytes) -> bytes:
    """The parent of a node to be deleted; what the service itself needs is refused."""
    cut = path.rfind(b"/")
    if cut == -1 or b"\x00" in path or path in _SPECIAL:
        raise ZkError(Err.BAD_ARGUMENTS)
    return path[:cut] or ROOT


def is_special(path: bytes) -> bool:
    """Whether this is a node that is always there: the root, /zookeeper, its quota and its config."""
    return path in _SPECIAL


def parent_of(path: bytes) -> bytes:
    """The parent of a node that exists; of the root, the root."""
    return path[: path.rfind(b"/")] or ROOT


def parent_and_name(path: bytes) -> tuple[bytes, bytes]:
    """Parent and last name of a node that exists and is not the root."""
    cut = path.rfind(b"/")
    return path[:cut] or ROOT, path[cut + 1 :]
