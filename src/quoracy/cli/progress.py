"""A progress bar for work that reports `(done, total)`; nothing where nobody is looking."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

import click

__all__ = ["progress_bar"]


@contextlib.contextmanager
def progress_bar(label: str) -> Iterator[Callable[[int, int], None]]:
    """A callback that moves a bar on stderr, so that stdout stays what a script expects."""
    with click.progressbar(
        length=1, label=label, file=sys.stderr, hidden=not sys.stderr.isatty()
    ) as bar:
        done_before = 0

        def advance(done: int, total: int) -> None:
            nonlocal done_before
            bar.length = max(total, 1)
            bar.update(done - done_before)
            done_before = done

        yield advance
