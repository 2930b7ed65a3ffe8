"""Judging what processes wrote down."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

from tests.recipes.processes.ledger import Entry

__all__ = ["at_most", "exclusive", "of", "once_each"]


def of(entries: Sequence[Entry], trial: str, event: str) -> list[Entry]:
    return [entry for entry in entries if entry.trial == trial and entry.event == event]


def exclusive(held: Sequence[Entry]) -> None:
    """Nobody was sure to hold it (`until`) after somebody with a larger token held it (`at`)."""
    in_order = sorted(held, key=lambda entry: entry.token)
    for before, after in itertools.pairwise(in_order):
        assert before.until <= after.at, f"two held it at once: {before} and {after}"


def at_most(held: Sequence[Entry], most: int) -> None:
    """No more than `most` were sure to hold it at the same moment."""
    changes = sorted(
        [(entry.at, 1) for entry in held if entry.until > entry.at]
        + [(entry.until, -1) for entry in held if entry.until > entry.at]
    )
    now = 0
    for _, change in changes:
        now += change
        assert now <= most, f"{now} held it at once, {most} may"


def once_each(taken: Sequence[Entry]) -> None:
    """No value was taken twice."""
    twice = [value for value, count in Counter(entry.value for entry in taken).items() if count > 1]
    assert not twice, f"taken more than once: {twice[:5]}"
