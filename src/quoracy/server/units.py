"""Durations and sizes as people write them: `90m`, `1h30m`, `2GiB`."""

from __future__ import annotations

import re

from quoracy.errors import InvalidRequest

__all__ = ["format_count", "format_size", "parse_duration_s", "parse_size"]

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
