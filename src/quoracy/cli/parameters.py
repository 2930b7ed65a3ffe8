"""Parameters that click does not know: durations, data files, leases, keys, a command after `--`.

What a parser needs is imported when there is something to parse: most verbs never get there.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from quoracy.errors import InvalidRequest

__all__ = [
    "CommandWithTail",
    "read_bytes",
    "read_data",
    "read_duration",
    "read_lease",
    "tail_of",
    "usage_error",
]

_T = TypeVar("_T")
_TAIL = "quoracy.cli.tail"


class CommandWithTail(click.Command):
    """A verb that takes another command after `--`: `quoracy lock NAME -- ./backup.sh --full`.

    What comes after the first `--` is kept apart, whatever it looks like; `tail_of` returns it.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        head, tail = args, None
        if "--" in args:
            at = args.index("--")
            head, tail = args[:at], tuple(args[at + 1 :])
            if not tail:
                raise click.UsageError("there is no command after `--`.", ctx)
        ctx.meta[_TAIL] = tail or ()
        return super().parse_args(ctx, head)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- COMMAND [ARGS]...]"]


def tail_of(ctx: click.Context) -> tuple[str, ...]:
    """The command after `--`; empty if there is none."""
    tail: tuple[str, ...] = ctx.meta[_TAIL]
    return tail


def usage_error(message: str) -> click.UsageError:
    """An error that names the verb whose `--help` explains."""
    return click.UsageError(message, click.get_current_context(silent=True))


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
    # The common forms, without importing the server's parser.
    number = text.removesuffix("s")
    if number.isascii() and number.replace(".", "", 1).isdigit():
        return float(number)
    from quoracy.server.values import parse_duration_s

    return parse_duration_s(text)
