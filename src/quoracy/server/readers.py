"""What a setting means: text in, value out, `InvalidRequest` for what cannot be meant."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from quoracy.errors import InvalidRequest
from quoracy.server.units import parse_duration_s, parse_size

__all__ = [
    "count",
    "count_or_zero",
    "digest",
    "duration_s",
    "file",
    "flags",
    "jute_maxbuffer",
    "milliseconds",
    "milliseconds_or_zero",
    "one_of",
    "or_off",
    "size",
    "words",
    "yes_or_no",
]

_T = TypeVar("_T")
# Twice that many still fit the 32 bits that ZooKeeper's protocol has for a timeout.
_MS_MAX = 1_000_000_000
_DIGEST = re.compile(r"[^:]+:[A-Za-z0-9+/]{27}=")


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
    if not _DIGEST.fullmatch(text):  # whatever it is, it is not for the log
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
