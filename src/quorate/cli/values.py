"""Option values that click does not know: addresses, sizes, durations, data files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from quorate.errors import InvalidRequest
from quorate.server.config import Address, data_path
from quorate.server.units import parse_duration_s, parse_size

__all__ = ["read_address", "read_count", "read_data", "read_duration_s", "read_size"]

_T = TypeVar("_T")


def read_address(text: str) -> Address | None:
    return None if text == "off" else _read(Address.parse, text)


def read_count(text: str) -> int | None:
    return None if text == "off" else _read(_parse_count, text)


def read_duration_s(text: str) -> float | None:
    return None if text == "off" else _read(parse_duration_s, text)


def read_size(text: str) -> int:
    return _read(parse_size, text)


def read_data(text: str) -> Path:
    return _read(data_path, text)


def _read(parse: Callable[[str], _T], text: str) -> _T:
    try:
        return parse(text)
    except InvalidRequest as error:
        raise click.BadParameter(str(error)) from error


def _parse_count(text: str) -> int:
    digits = text.replace("_", "").replace(",", "")
    if not (digits.isascii() and digits.isdigit()) or int(digits) == 0:
        raise InvalidRequest(f"{text!r} is not a number above 0, nor off.")
    return int(digits)
