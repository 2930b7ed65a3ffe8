"""Moments in a store's history as people give them: 1042, -10 for ten before the newest, 5m for how it
was five minutes ago.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import click

from quoracy.cli.values import read_duration
from quoracy.errors import Unsupported
from quoracy.store.api import Store
from quoracy.store.legacy import KnowsTimes

__all__ = ["At", "at_option"]

_DURATION = re.compile(r"(\d+(\.\d+)?(ms|s|m|h|d))+")


@dataclass(frozen=True, slots=True)
class At:
    """A revision, so many before the newest (0 and less), or a time ago; `text` is how it was given."""

    text: str
    revision: int = 0
    age_s: float | None = None

    async def find(self, store: Store) -> int:
        """The revision it is in this store."""
        if self.age_s is not None:
            if not isinstance(store, KnowsTimes):
                raise Unsupported("this store does not note when changes are made. Give a revision.")
            return await store.revision_at(self.age_s)
        if self.revision >= 1:
            return self.revision
        newest = (await store.range(b"\0", count_only=True)).revision
        return max(1, newest + self.revision)

    def explain(self, revision: int) -> None:
        """Say which revision it was, on stderr, where there is something to say."""
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
    help="As it was at this revision; -N: N before now; 30s, 5m, 2h: so long ago.",
)
