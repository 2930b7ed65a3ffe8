"""Output of the verbs: tables and colour for people, lines for pipes, JSON for programs.

`-o text` (the default) looks at stdout: a terminal gets tables, a pipe gets one line for each row, its
columns separated by tabs and without a header.  `-o json` gives one document, or one on each line where
answers keep coming.  `-o value` gives the bare values, each followed by a newline; `-o raw` adds not
even that.  A progress bar goes to stderr, so that stdout stays what a script expects.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any

import click

from quoracy.cli.text import escape, readable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = ["Column", "Form", "Output", "empty_table", "output_options", "progress_bar"]


Cell = str | int | bytes


class Form(Enum):
    TEXT = "text"
    JSON = "json"
    VALUE = "value"
    RAW = "raw"


class Column:
    """A column of a table: its name, and how a terminal shows it."""

    __slots__ = ("name", "right", "style")

    def __init__(self, name: str, style: str = "", *, right: bool = False) -> None:
        self.name, self.style, self.right = name, style, right


class Output:
    """The form of a verb's answers, and the stream they go to."""

    def __init__(self, form: Form = Form.TEXT, *, terminal: bool | None = None) -> None:
        self.form = form
        self.terminal = sys.stdout.isatty() if terminal is None else terminal
        self._rich: Console | None = None

    @property
    def is_json(self) -> bool:
        return self.form is Form.JSON

    @property
    def is_values(self) -> bool:
        return self.form in (Form.VALUE, Form.RAW)

    def document(self, document: Mapping[str, object]) -> None:
        """One JSON document on a line of its own."""
        import json

        click.echo(json.dumps(document, ensure_ascii=False))

    def value(self, value: bytes) -> None:
        """A value as it is."""
        if self.form is Form.TEXT and self.terminal:
            self.line(readable(value))
        else:
            click.echo(value, nl=self.form is not Form.RAW)

    def line(self, text: str, **style: Any) -> None:
        click.echo(click.style(text, **style) if style else text)

    def table(self, columns: Sequence[Column], rows: Iterable[Sequence[Cell]]) -> None:
        """A table on a terminal, tab-separated lines elsewhere."""
        if self.terminal:
            self._table(columns, rows)
            return
        for row in rows:
            click.echo("\t".join(_plain(cell) for cell in row))

    def _table(self, columns: Sequence[Column], rows: Iterable[Sequence[Cell]]) -> None:
        from rich.text import Text

        table = empty_table(columns)
        for row in rows:
            table.add_row(*(Text(_shown(cell)) for cell in row))
        self.console.print(table)

    @property
    def console(self) -> Console:
        if self._rich is None:
            from rich.console import Console

            self._rich = Console(highlight=False, markup=False, emoji=False)
        return self._rich


def empty_table(columns: Sequence[Column], *, no_wrap: bool = False) -> Table:
    """A table for a terminal; its cells are folded where it is too wide, or cut with `no_wrap`."""
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(
            column.name.upper(),
            style=column.style or None,
            justify="right" if column.right else "left",
            overflow="ellipsis" if no_wrap else "fold",
            no_wrap=no_wrap,
        )
    return table


def _plain(cell: Cell) -> str:
    return escape(cell) if isinstance(cell, bytes) else str(cell)


def _shown(cell: Cell) -> str:
    return f"{cell:,}" if isinstance(cell, int) else _plain(cell)


def output_options(*forms: Form) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """`-o FORM`, handed to the verb as `output`."""
    names = [form.value for form in (Form.TEXT, *forms)]

    def read(
        ctx: click.Context,  # noqa: ARG001 (click passes it)
        param: click.Parameter,  # noqa: ARG001
        value: str,
    ) -> Output:
        return Output(Form(value))

    return click.option(
        "-o",
        "--output",
        type=click.Choice(names),
        default="text",
        show_default=True,
        callback=read,
        help="How to show the answer; in JSON, what is not UTF-8 is base64, under NAME_base64.",
    )


@contextlib.contextmanager
def progress_bar(label: str) -> Iterator[Callable[[int, int], None]]:
    """A callback for work that reports `(done, total)`; it moves a bar if stderr is a terminal."""
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
