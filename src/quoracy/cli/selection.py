"""Which keys a verb means, and as of when.

KEY is one key, or with --prefix, --from-key or --range END many.  --at is a revision (1042), a number
of revisions before the newest (-10), or an age (5m).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from quoracy.cli.parameters import read_bytes, read_duration, usage_error
from quoracy.store.api import Store
from quoracy.store.model import KeyRange, Keys

__all__ = ["At", "at_option", "is_everything", "select_keys", "selection_options"]

_DURATION = re.compile(r"(\d+(\.\d+)?(ms|s|m|h|d))+")


def select_keys(
    key: bytes, *, prefix: bool = False, from_key: bool = False, range_end: bytes | None = None
) -> Keys:
    """The keys that KEY and its flags mean; raises `click.UsageError` for flags that contradict."""
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
        raise usage_error(f"{' and '.join(given)} contradict each other. Give one.")
    if prefix:
        return KeyRange.prefix(key)
    if from_key:
        return KeyRange.from_key(key)
    if range_end is not None:
        if range_end <= key:
            raise usage_error(
                "--range END must come after KEY in byte order; KEY is included, END not."
            )
        return KeyRange(key, range_end)
    if not key:
        raise usage_error("the key is empty. Give one, or --prefix to mean every key there is.")
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
        "--range", "range_end", type=read_bytes, metavar="END", help="From KEY up to, not with, END."
    )(wrapped)
    decorated = click.option("--from-key", is_flag=True, help="KEY and every key after it.")(decorated)
    return click.option("--prefix", is_flag=True, help='Every key that starts with KEY; "" is all.')(
        decorated
    )


@dataclass(frozen=True, slots=True)
class At:
    """A revision (0 and less: counted back from the newest), or an age; `text` is how it was given."""

    text: str
    revision: int = 0
    age_s: float | None = None

    async def find(self, store: Store) -> int:
        """The revision of this store that is meant."""
        if self.age_s is not None:
            return await store.revision_at(self.age_s)
        if self.revision >= 1:
            return self.revision
        newest = (await store.range(b"\0", count_only=True)).revision
        return max(1, newest + self.revision)

    def explain(self, revision: int) -> None:
        """Show on stderr which revision an age meant."""
        if self.age_s is not None:
            click.echo(click.style(f"{self.text} ago: revision {revision:,}", dim=True), err=True)


def _read_at(text: str) -> At:
    digits = text.replace(",", "").replace("_", "")
    if digits.removeprefix("-").isascii() and digits.removeprefix("-").isdigit():
        return At(text, revision=int(digits))
    if _DURATION.fullmatch(text):
        return At(text, age_s=read_duration(text))
    raise click.BadParameter(
        f"{text!r} is neither a revision nor a time. Write 1042, -10 for ten before now, or 5m."
    )


at_option = click.option(
    "--at",
    type=_read_at,
    metavar="REV|TIME",
    help="As of this revision; -N: N before the newest; 30s, 5m, 2h: that long ago.",
)
