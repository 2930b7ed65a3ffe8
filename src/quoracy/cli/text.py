"""Bytes as people and scripts read them: escaped text, JSON, lease ids.

Keys and values are bytes.  On the command line they are what the shell passes.  In text output, what
cannot be printed is escaped, so that no value can move a cursor or break a line.  In JSON, text stays
text and everything else is base64 under a name that says so.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Mapping

from quoracy.errors import InvalidRequest
from quoracy.store.model import KeyValue

__all__ = ["escape", "format_lease", "from_shell", "json_bytes", "json_kv", "parse_lease", "readable"]

_NAMED = {"\n": r"\n", "\r": r"\r", "\t": r"\t", "\\": "\\\\"}
_LEASE = re.compile(r"(?:0x)?([0-9a-fA-F]{1,16})")


def from_shell(argument: str) -> bytes:
    """The bytes that the shell passed, text or not."""
    return os.fsencode(argument)


def escape(data: bytes) -> str:
    r"""One line that can be printed anywhere, and read back: `\n`, `\x1b`, `\\`.

    >>> escape(b"a\tb\xff")
    'a\\tb\\xff'
    """
    return "".join(_escape_char(char) for char in data.decode("utf-8", "surrogateescape"))


def readable(data: bytes) -> str:
    """For a terminal: like `escape`, but lines stay lines and a backslash stays one."""
    text = data.decode("utf-8", "surrogateescape")
    return "".join(char if char in "\n\t\\" else _escape_char(char) for char in text)


def json_bytes(name: str, data: bytes) -> dict[str, str]:
    """`{"value": "text"}`, or `{"value_base64": "..."}` for what is not UTF-8."""
    try:
        return {name: data.decode("utf-8")}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode("ascii")}


def json_kv(kv: KeyValue, *, with_value: bool = True) -> Mapping[str, object]:
    document: dict[str, object] = dict(json_bytes("key", kv.key))
    if with_value:
        document |= json_bytes("value", kv.value)
    document |= {
        "create_revision": kv.create_revision,
        "mod_revision": kv.mod_revision,
        "version": kv.version,
    }
    if kv.lease:
        document["lease"] = format_lease(kv.lease)
    return document


def format_lease(lease: int) -> str:
    """As etcdctl writes them.

    >>> format_lease(0x2695410dcc0ca06)
    '02695410dcc0ca06'
    """
    return f"{lease & 0xFFFF_FFFF_FFFF_FFFF:016x}"


def parse_lease(text: str) -> int:
    match = _LEASE.fullmatch(text)
    if match is None or not int(match[1], 16):
        raise InvalidRequest(
            f"{text!r} is not a lease id. Write it in hexadecimal, as `quoracy lease list` does."
        )
    lease = int(match[1], 16)
    return lease - (1 << 64) if lease >= 1 << 63 else lease


def _escape_char(char: str) -> str:
    if char in _NAMED:
        return _NAMED[char]
    if char.isprintable():
        return char
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is not UTF-8
        return f"\\x{code - 0xDC00:02x}"
    return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
