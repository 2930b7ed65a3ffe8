"""Values of settings: text in, value out, `InvalidRequest` for text that means nothing.

Durations and sizes are written as `90m`, `1h30m`, `2GiB`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from quoracy.errors import InvalidRequest

__all__ = [
    "count",
    "count_or_zero",
    "digest",
    "duration_s",
    "file",
    "flags",
    "format_count",
    "format_size",
    "jute_maxbuffer",
    "milliseconds",
    "milliseconds_or_zero",
    "one_of",
    "or_off",
    "parse_duration_s",
    "parse_size",
    "size",
    "words",
    "yes_or_no",
]


_T = TypeVar("_T")
# Twice this still fits the 32 bits that ZooKeeper's protocol has for a timeout.
_MS_MAX = 1_000_000_000
_DIGEST = re.compile(r"[^:]+:[A-Za-z0-9+/]{27}=")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_BYTES = {
    "": 1,
    "B": 1,
    "KB": 1_000,
    "MB": 1_000**2,
    "GB": 1_000**3,
    "KIB": 1_024,
    "MIB": 1_024**2,
    "GIB": 1_024**3,
}
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")


def parse_duration_s(text: str) -> float:
    """Seconds.

    >>> parse_duration_s("1h30m")
    5400.0
    """
    parts = _DURATION_PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise InvalidRequest(f"{text!r} is not a duration. Write it as 90s, 30m, 1h30m or 7d.")
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


def parse_size(text: str) -> int:
    """Bytes.

    >>> parse_size("1.5MiB")
    1572864
    """
    match = _SIZE.fullmatch(text.strip())
    factor = _BYTES.get(match[2].upper()) if match else None
    if match is None or factor is None:
        raise InvalidRequest(f"{text!r} is not a size. Write it as 500MB, 2GiB or plain bytes.")
    return int(float(match[1]) * factor)


def format_size(size_bytes: int) -> str:
    """
    >>> format_size(2 * 1024**3)
    '2 GiB'
    """
    for unit, factor in (("GiB", 1_024**3), ("MiB", 1_024**2), ("KiB", 1_024)):
        if size_bytes >= factor:
            return f"{size_bytes / factor:.1f} {unit}".replace(".0 ", " ")
    return f"{size_bytes} B"


def format_count(count: int, noun: str) -> str:
    """
    >>> format_count(1, "key"), format_count(12_000, "key")
    ('1 key', '12,000 keys')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def or_off(parse: Callable[[str], _T]) -> Callable[[str], _T | None]:
    return lambda text: None if text == "off" else parse(text)


def count(text: str) -> int:
    digits = text.replace("_", "").replace(",", "")
    if not (digits.isascii() and digits.isdigit()) or int(digits) == 0:
        raise InvalidRequest(f"{text!r} is not a number above 0.")
    return int(digits)


def size(text: str) -> int:
    size_bytes = parse_size(text)
    if size_bytes == 0:
        raise InvalidRequest(f"{text!r} leaves room for nothing; give more than 0 bytes.")
    return size_bytes


def duration_s(text: str) -> float:
    seconds = parse_duration_s(text)
    if seconds == 0:
        raise InvalidRequest(f"{text!r} is no time at all; give more, or off.")
    return seconds


def file(text: str) -> Path | None:
    return Path(text).expanduser()


def flags(text: str) -> tuple[str, ...]:
    """Flags for a program, written as a shell would take them."""
    import shlex

    try:
        given = tuple(shlex.split(text))
    except ValueError as error:
        raise InvalidRequest(f"{text!r} is not a list of flags: {error}.") from error
    for flag in given:
        if not flag.startswith("--"):
            raise InvalidRequest(f"{flag!r} is no flag. Write them as --NAME=VALUE --NAME=VALUE.")
    return given


def count_or_zero(text: str) -> int:
    digits = text.replace("_", "").replace(",", "")
    if not (digits.isascii() and digits.isdigit()):
        raise InvalidRequest(f"{text!r} is not a number.")
    return int(digits)


def milliseconds(text: str) -> int:
    """A plain number is in milliseconds, as in ZooKeeper's own configuration."""
    time_ms = int(text) if text.isascii() and text.isdigit() else 1000 * parse_duration_s(text)
    if time_ms < 1:
        raise InvalidRequest(f"{text!r} is no time at all; give more.")
    if time_ms > _MS_MAX:
        raise InvalidRequest(f"{text!r} is too long; the most is {_MS_MAX:,} ms.")
    return round(time_ms)


def milliseconds_or_zero(text: str) -> int:
    return 0 if text == "0" else milliseconds(text)


def jute_maxbuffer(text: str) -> int:
    size_bytes = size(text)
    if size_bytes >= 2**31:
        raise InvalidRequest(f"{text!r} is more than ZooKeeper's protocol has room for: 2 GiB.")
    return size_bytes


def yes_or_no(text: str) -> bool:
    meaning = {"yes": True, "true": True, "no": False, "false": False}.get(text.lower())
    if meaning is None:
        raise InvalidRequest(f"{text!r} is not one of yes, no.")
    return meaning


def words(text: str) -> frozenset[str]:
    given = frozenset(word.strip() for word in text.split(",")) - {""}
    for word in given - {"*"}:
        if len(word) != 4 or not word.isascii() or not word.isalpha():
            raise InvalidRequest(
                f"{word!r} is not a four-letter word. Write them as in srvr,ruok,mntr, or * for all."
            )
    return given


def digest(text: str) -> str | None:
    if not _DIGEST.fullmatch(text):  # it may be a password: not for the log
        raise InvalidRequest(
            "that is not a user and a digest. Write USER:DIGEST, where DIGEST is the SHA-1 of "
            "USER:PASSWORD in base64."
        )
    return text


def one_of(*choices: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in choices:
            raise InvalidRequest(f"{text!r} is not one of {', '.join(choices)}.")
        return text

    return read
