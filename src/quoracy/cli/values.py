"""Option values that click does not know: durations, data files, leases, keys.

What the parsers need is imported when there is something to parse: most verbs never get there.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from quoracy.errors import InvalidRequest

__all__ = [
    "read_bytes",
    "read_data",
    "read_duration",
    "read_lease",
]

_T = TypeVar("_T")


def read_duration(text: str) -> float:
    """Seconds; a plain number is seconds too."""
    return _read(_parse_duration_s, text)


def read_data(text: str) -> Path:
    from quoracy.server.config import data_path

    return _read(data_path, text)


def read_lease(text: str) -> int:
    from quoracy.cli.text import parse_lease

    return _read(parse_lease, text)


def read_bytes(text: str | bytes) -> bytes:
    from quoracy.cli.text import from_shell

    return text if isinstance(text, bytes) else from_shell(text)


def _read(parse: Callable[[str], _T], text: str) -> _T:
    try:
        return parse(text)
    except InvalidRequest as error:
        raise click.BadParameter(str(error)) from error


def _parse_duration_s(text: str) -> float:
    # The common forms without loading a server for its parser.
    number = text.removesuffix("s")
    if number.isascii() and number.replace(".", "", 1).isdigit():
        return float(number)
    from quoracy.server.units import parse_duration_s

    return parse_duration_s(text)
