"""The screen of a cell on this machine: a table that is kept up to date, or lines in a pipe.

On a terminal the table stays at the bottom of the screen.  Elsewhere each change of a node is one line.
A terminal that was closed must not keep the cell from stopping: from then on nothing is written.
"""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from quoracy.cli.cell.node import HOST, Layout, Node, State
from quoracy.cli.output import Column, empty_table

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

__all__ = ["COLUMNS", "Row", "Screen", "cells_of", "how_to_connect", "rows_of"]


COLUMNS = (
    Column("node", "bold"),
    Column("pid", right=True),
    Column("state"),
    Column("etcd member"),
    Column("revision", right=True),
    Column("lag", right=True),
    Column("etcd", "cyan"),
    Column("zookeeper", "cyan"),
    Column("http", "cyan"),
)
_WAITING_MAX = 64
_FINISH_S_MAX = 2.0
_STATE_STYLES = {
    State.SERVING.value: "green",
    State.STARTING.value: "yellow",
    State.PAUSED.value: "yellow",
}


@dataclass(frozen=True, slots=True)
class Row:
    """One node; the names of the fields are those of `quoracy cell status -o json`."""

    node: str
    pid: int | None
    state: str
    reason: str
    role: str
    member_pid: int | None
    member_version: str
    revision: int | None
    lag: int | None
    etcd: str
    zookeeper: str
    http: str


def rows_of(nodes: Sequence[Node]) -> list[Row]:
    # Of several that report to lead, the one with the newest term does.
    term = max((node.member.term for node in nodes if node.member is not None), default=0)
    return [_row_of(node, newest_term=term) for node in nodes]


def _role_of(node: Node, newest_term: int) -> str:
    member = node.member
    if member is None:
        return "paused" if node.is_member_paused else ""
    if member.leads and member.term == newest_term:
        return "leader"
    return "follower" if member.has_leader else "no leader"


def _row_of(node: Node, *, newest_term: int) -> Row:
    cluster, state = node.cluster, node.state
    reasons = {State.DOWN: node.how_it_ended, State.NOT_SERVING: str(cluster.get("reason", ""))}
    known = state in (State.SERVING, State.NOT_SERVING)
    return Row(
        node=node.name,
        pid=node.pid,
        state=state.value,
        reason=reasons.get(state, ""),
        role=_role_of(node, newest_term),
        member_pid=node.member_pid,
        member_version="" if node.member is None else node.member.version,
        revision=(node.health or {}).get("revision") if known else None,
        lag=cluster.get("lag") if known else None,
        etcd=f"{HOST}:{node.ports.etcd}",
        zookeeper=f"{HOST}:{node.ports.zookeeper}",
        http=f"{HOST}:{node.ports.http}",
    )


def cells_of(row: Row) -> tuple[str | int, ...]:
    """A row of the table; `-` is what is not known."""
    state = f"{row.state} ({row.reason})" if row.state == State.DOWN.value else row.state
    member = [row.role or "-"]
    if row.member_pid is not None:
        member.append(f"pid {row.member_pid}")
    return (
        row.node,
        "-" if row.pid is None else str(row.pid),
        state,
        " ".join(member),
        "-" if row.revision is None else row.revision,
        "-" if row.lag is None else row.lag,
        # All have the same host, and the width of a terminal is limited.
        *(place.removeprefix(HOST) for place in (row.etcd, row.zookeeper, row.http)),
    )


def how_to_connect(layout: Layout, *, directory: str | None) -> list[str]:
    """Commands to copy."""
    etcd, zookeeper = layout.endpoints("etcd"), layout.endpoints("zookeeper")
    kazoo = (
        f"python -c \"from kazoo.client import KazooClient as Z; z = Z('{zookeeper}'); z.start(); "
        "print(z.create('/job-', b'', sequence=True))\""
    )
    which = "" if directory is None else f" --dir {directory}"
    return [
        f"quoracy put greeting hello -e quoracy://{etcd}",
        f"etcdctl --endpoints={etcd} get greeting",
        kazoo,
        f"quoracy cell kill 1{which}    # or pause 2; then: quoracy cell heal{which}",
    ]


class Screen:
    """Shows the cell while it is up; no method waits for the terminal."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._terminal = _Terminal(stream or sys.stdout)
        self._last: list[Row] = []

    def say(self, *lines: str) -> None:
        self._terminal.soon(lambda terminal: terminal.say(lines))

    def open_table(self) -> None:
        """Show a table from now on, if this is a terminal."""
        self._terminal.soon(lambda terminal: terminal.open_table())

    def show(self, rows: list[Row]) -> None:
        if rows != self._last:
            self._last = rows
            self._terminal.soon(lambda terminal: terminal.show(rows))

    def close_table(self) -> None:
        self._terminal.soon(lambda terminal: terminal.close_table())

    def gone(self) -> None:
        """The terminal was closed: write nothing more."""
        self._terminal.is_gone = True

    def close(self) -> None:
        """Write what is waiting, unless the terminal takes too long."""
        self._terminal.finish()


class _Terminal:
    """Writes in a thread of its own: a terminal that was stopped must not stop the cell.

    With `_WAITING_MAX` things to write, the next is dropped.
    """

    def __init__(self, stream: TextIO) -> None:
        self.is_gone = False
        self._stream = stream
        self._live: Live | None = None
        self._shown: dict[str, str] = {}
        self._waiting: queue.Queue[Callable[[_Terminal], None] | None] = queue.Queue(_WAITING_MAX)
        self._thread = threading.Thread(target=self._write, name="cell-screen", daemon=True)
        self._thread.start()

    def soon(self, work: Callable[[_Terminal], None]) -> None:
        with contextlib.suppress(queue.Full):
            self._waiting.put_nowait(work)

    def finish(self) -> None:
        with contextlib.suppress(queue.Full):
            self._waiting.put_nowait(None)
        self._thread.join(_FINISH_S_MAX)
        if self.is_gone and self._stream is sys.stdout:
            # The interpreter flushes what is buffered when it exits; that must not fail again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())

    def _write(self) -> None:
        while (work := self._waiting.get()) is not None:
            if self.is_gone:
                continue
            try:
                work(self)
            except OSError:
                self.is_gone = True

    # -- in the thread

    def say(self, lines: Sequence[str]) -> None:
        if self._live is not None:
            for line in lines:
                self._live.console.print(line, soft_wrap=True)
            return
        self._stream.write("".join(f"{line}\n" for line in lines))
        self._stream.flush()

    def open_table(self) -> None:
        if not self._stream.isatty():
            return
        from rich.console import Console
        from rich.live import Live

        console = Console(file=self._stream, highlight=False, markup=False, emoji=False)
        self._live = Live(console=console, auto_refresh=False, redirect_stdout=False)
        self._live.start()

    def show(self, rows: Sequence[Row]) -> None:
        if self._live is not None:
            self._live.update(_table(rows), refresh=True)
            return
        for row in rows:
            # Only what changes seldom: a line for each revision would be too many.
            line = "  ".join(str(cell) for cell in (row.node, row.state, row.role, row.reason) if cell)
            if self._shown.get(row.node) != line:
                self._shown[row.node] = line
                self.say([line])

    def close_table(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            live.stop()


def _table(rows: Sequence[Row]) -> Table:
    from rich.text import Text

    table = empty_table(COLUMNS, no_wrap=True)  # a table that changes its height leaves lines behind
    for row in rows:
        cells = [Text(f"{cell:,}" if isinstance(cell, int) else cell) for cell in cells_of(row)]
        cells[2].stylize(_STATE_STYLES.get(row.state, "red"))
        if row.role == "leader":
            cells[3].stylize("bold")
        table.add_row(*cells)
    return table
