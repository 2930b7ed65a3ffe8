"""Which keys a verb means: KEY, or with --prefix, --from-key or --range END more of them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from quoracy.cli.values import read_bytes
from quoracy.store.model import KeyRange, Keys

__all__ = ["is_everything", "select_keys", "selection_options"]


def select_keys(
    key: bytes, *, prefix: bool = False, from_key: bool = False, range_end: bytes | None = None
) -> Keys:
    """The keys that KEY and its flags mean; raises `click.UsageError` where they contradict."""
    given = [
        flag
        for flag, is_given in (
            ("--prefix", prefix),
            ("--from-key", from_key),
            ("--range", range_end is not None),
        )
        if is_given
    ]
    if len(given) > 1:
        raise click.UsageError(f"{' and '.join(given)} contradict each other. Give one.", _context())
    if prefix:
        return KeyRange.prefix(key)
    if from_key:
        return KeyRange.from_key(key)
    if range_end is not None:
        if range_end <= key:
            raise click.UsageError(
                "--range END must come after KEY in byte order; KEY is included, END not.",
                _context(),
            )
        return KeyRange(key, range_end)
    if not key:
        raise click.UsageError(
            "the key is empty. Give one, or --prefix to mean every key there is.", _context()
        )
    return key


def is_everything(keys: Keys) -> bool:
    return isinstance(keys, KeyRange) and keys.start in (b"", b"\0") and keys.end is None


def selection_options(verb: Callable[..., Any]) -> Callable[..., Any]:
    """--prefix, --from-key and --range: with the argument KEY they become `keys`."""

    @functools.wraps(verb)
    def wrapped(
        *args: Any, key: bytes, prefix: bool, from_key: bool, range_end: bytes | None, **options: Any
    ) -> Any:
        keys = select_keys(key, prefix=prefix, from_key=from_key, range_end=range_end)
        return verb(*args, keys=keys, **options)

    decorated: Callable[..., Any] = click.option(
        "--range",
        "range_end",
        type=read_bytes,
        metavar="END",
        help="From KEY up to, not with, END.",
    )(wrapped)
    decorated = click.option("--from-key", is_flag=True, help="KEY and every key after it.")(decorated)
    return click.option("--prefix", is_flag=True, help='Every key that starts with KEY; "" is all.')(
        decorated
    )


def _context() -> click.Context | None:
    return click.get_current_context(silent=True)
