"""`quoracy members`: the members of a cluster, as one of them sees it, once or kept up to date.

Names and metadata are chosen by the members, so they are escaped: no name can move a cursor.
"""

from __future__ import annotations

import asyncio
import base64
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from quoracy.cli.exits import Exit
from quoracy.cli.output import Column, Form, Output, empty_table, output_options
from quoracy.cli.parameters import read_duration
from quoracy.cli.text import escape
from quoracy.errors import InvalidRequest, QuoracyError

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

    from quoracy.membership.runtime.keyring import KeyRing
    from quoracy.membership.runtime.queries import AgentQuery, AgentReport, MemberReport

__all__ = [
    "cells_of",
    "command",
    "headline",
    "json_meta",
    "json_report",
    "key_options",
    "read_key_file",
    "screen_of",
    "show_meta",
    "warnings",
]

COLUMNS = (
    Column("member", "bold"),
    Column("address", "cyan"),
    Column("state"),
    Column("since", right=True),
    Column("inc", right=True),
    Column("phi", right=True),
    Column("rtt", right=True),
    Column("metadata"),
)
_STATE_STYLES = {"alive": "green", "suspect": "yellow", "dead": "red", "left": "dim"}
_NAME_WIDTH_MAX = 40
_ORDER = ("alive", "suspect", "dead", "left")


def key_options(verb: Callable[..., Any]) -> Callable[..., Any]:
    """`--key-file` and `--label`, for members and for `quoracy members`."""
    label = click.option(
        "--label",
        metavar="TEXT",
        default="",
        envvar="QUORACY_LABEL",
        show_envvar=True,
        help="The cluster's name: members of another one are not heard.",
    )
    key_file = click.option(
        "--key-file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        envvar="QUORACY_KEY_FILE",
        show_envvar=True,
        help="The cluster's keys, as `quoracy agent keygen` writes them: everything is encrypted.",
    )
    return key_file(label(verb))


def read_key_file(path: Path | None) -> KeyRing | None:
    """The keys in a file.  Raises `InvalidRequest` if it cannot be read, or is no key file."""
    if path is None:
        return None
    from quoracy.membership.runtime.keyring import KeyRing

    try:
        text = path.read_text(encoding="ascii")
    except OSError as error:
        raise InvalidRequest(f"the key file {path}: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise InvalidRequest(
            f"the key file {path} is not text. `quoracy agent keygen {path}.new` makes one."
        ) from error
    try:
        return KeyRing.from_text(text)
    except InvalidRequest as error:
        raise InvalidRequest(f"the key file {path}: {error}") from error


@click.command("members")
@click.option(
    "--agent",
    metavar="HOST[:PORT]",
    default="127.0.0.1:7946",
    show_default=True,
    envvar="QUORACY_AGENT",
    show_envvar=True,
    help="The member to ask.",
)
@click.option("--watch", is_flag=True, help="Keep showing it until Ctrl-C.")
@click.option(
    "--every",
    "every_s",
    type=read_duration,
    metavar="TIME",
    default="1s",
    show_default=True,
    help="With --watch: how often to ask.",
)
@key_options
@click.option(
    "--timeout",
    "timeout_s",
    type=read_duration,
    metavar="TIME",
    default="5s",
    show_default=True,
    help="How long to wait for an answer.",
)
@output_options(Form.JSON, Form.VALUE)
def command(
    agent: str,
    watch: bool,
    every_s: float,
    key_file: Path | None,
    label: str,
    timeout_s: float,
    output: Output,
) -> int:
    """Show every member that one member of a cluster knows: alive, suspect, dead, or left.

    PHI says how surprising the silence of a member is: 1 is one time in ten, 8 is one in a hundred
    million. RTT is how long its answers take. INC grows when a member contradicts a
    suspicion. On a pipe each member is one line, its columns separated by tabs; `-o value` gives the
    names of those that are alive or suspect, and nothing else.

    \b
    Examples:
      quoracy members
      quoracy members --watch
      quoracy members --agent 10.0.0.1 -o json
    """
    from quoracy.membership.runtime.queries import AgentQuery

    asking = AgentQuery(agent, keyring=read_key_file(key_file), label=label, timeout_s=timeout_s)
    try:
        if watch:
            asyncio.run(_watch(asking, output, every_s))
        else:
            _show(output, asyncio.run(asking.ask()))
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    return Exit.DONE


def _show(output: Output, report: AgentReport) -> None:
    if output.is_json:
        output.document(json_report(report))
    elif output.is_values:
        for member in report.members:
            if member.state in ("alive", "suspect"):
                output.value(member.name.encode())
    elif output.terminal:
        output.console.print(table_of(report))
        output.line(headline(report), dim=True)
        for warning in warnings(report):
            output.line(warning, fg="yellow")
    else:
        output.table(COLUMNS, [cells_of(member) for member in report.members])


async def _watch(asking: AgentQuery, output: Output, every_s: float) -> None:
    if output.form is Form.TEXT and output.terminal:
        await _watch_on_terminal(asking, output, every_s)
        return
    shown: list[tuple[str, str, str, int]] | None = None
    while True:
        report = await asking.ask()
        # Without phi and round trips, which are never the same twice.
        now = [(each.name, each.address, each.state, each.incarnation) for each in report.members]
        if now != shown:
            _show(output, report)
            sys.stdout.flush()
            shown = now
        await asyncio.sleep(every_s)


async def _watch_on_terminal(asking: AgentQuery, output: Output, every_s: float) -> None:
    """Use the alternate screen, which survives a resize; the last state is printed at the end."""
    from rich.live import Live

    report = await asking.ask()  # an error here ends the verb before there is a screen
    note = ""
    try:
        with Live(console=output.console, screen=True, auto_refresh=False) as live:
            while True:
                height = output.console.size.height
                live.update(screen_of(report, note=note, height=height), refresh=True)
                await asyncio.sleep(every_s)
                try:
                    report, note = await asking.ask(), ""
                except (QuoracyError, TimeoutError) as error:
                    note = f"no answer: {error}"
    finally:
        _show(output, report)


# -- as a table, as a screen, as JSON


def headline(report: AgentReport) -> str:
    """The member that was asked, and how many it sees in each state."""
    counts = Counter(member.state for member in report.members)
    states = ", ".join(f"{counts[state]} {state}" for state in _ORDER if counts[state])
    sealed = "encrypted" if report.is_encrypted else "not encrypted"
    return f"{_text(report.name)} at {_text(report.address)} sees {states}; {sealed}"


def warnings(report: AgentReport) -> list[str]:
    """What else a person should know: one sentence each."""
    found = []
    if report.health:
        found.append(
            f"It is not well itself (health {report.health} of {report.health_max}): it is overloaded, "
            "or its network loses packets."
        )
    if dropped := sum(report.dropped.values()):
        worst = max(report.dropped, key=lambda reason: report.dropped[reason])
        found.append(f"It dropped {dropped:,} packets and messages, most of them as: {worst}.")
    return found


def cells_of(member: MemberReport) -> tuple[str, ...]:
    """A row; `-` is what is not known."""
    return (
        _text(member.name),
        _text(member.address),
        member.state,
        "-" if member.since_s is None else _duration(member.since_s),
        str(member.incarnation),
        "-" if member.phi is None else f"{min(member.phi, 99.9):.1f}",
        "-" if member.rtt_s is None else f"{member.rtt_s * 1e3:.2f} ms",
        show_meta(member.meta, member.meta_bytes),
    )


def table_of(report: AgentReport, *, rows_max: int | None = None) -> Table:
    """For a terminal; if there are more rows than fit, a last row says how many were left out."""
    from rich.text import Text

    table = empty_table(COLUMNS, no_wrap=True)
    table.columns[0].max_width = _NAME_WIDTH_MAX
    # Where the terminal is too narrow, metadata is cut first; no row ever takes a second line.
    table.columns[-1].no_wrap = False
    members = report.members
    if rows_max is not None and len(members) > rows_max:
        members = members[: max(0, rows_max - 1)]
    for member in members:
        cells = [Text(cell, no_wrap=True, overflow="ellipsis") for cell in cells_of(member)]
        cells[2].stylize(_STATE_STYLES.get(member.state, ""))
        table.add_row(*cells)
    if left_out := len(report.members) - len(members):
        table.add_row(Text(f"... and {left_out:,} more", style="dim", no_wrap=True))
    return table


def screen_of(report: AgentReport | None, *, note: str, height: int) -> Group:
    """The whole screen: a headline, warnings, and as much of the table as fits."""
    from rich.console import Group
    from rich.text import Text

    lines: list[Text | Table] = []
    if report is not None:
        lines.append(Text(headline(report), style="dim", no_wrap=True, overflow="ellipsis"))
    for warning in (*([note] if note else []), *(warnings(report) if report is not None else [])):
        lines.append(Text(warning, style="yellow", no_wrap=True, overflow="ellipsis"))
    if report is not None:
        lines.append(table_of(report, rows_max=max(1, height - len(lines) - 1)))
    return Group(*lines)


def json_report(report: AgentReport) -> dict[str, object]:
    return {
        "name": report.name,
        "address": report.address,
        "uptime_s": report.uptime_s,
        "health": report.health,
        "encrypted": report.is_encrypted,
        "members": [_json_member(member) for member in report.members],
        "protocol": report.protocol,
        "traffic": report.traffic,
        "dropped": report.dropped,
    }


def _json_member(member: MemberReport) -> dict[str, object]:
    return {
        "name": member.name,
        "address": member.address,
        "state": member.state,
        "since_s": member.since_s,
        "incarnation": member.incarnation,
        "phi": member.phi,
        "heard_s": member.heard_s,
        "rtt_s": member.rtt_s,
        **json_meta(member.meta, member.meta_bytes),
    }


def json_meta(meta: Mapping[str, str], meta_bytes: bytes) -> dict[str, object]:
    """Metadata as text, or as base64 if it is bytes."""
    if meta_bytes:
        return {"meta_base64": base64.b64encode(meta_bytes).decode("ascii")}
    return {"meta": dict(meta)}


def show_meta(meta: Mapping[str, str], meta_bytes: bytes) -> str:
    """
    >>> show_meta({"zone": "a", "port": "80"}, b""), show_meta({}, b"12345")
    ('zone=a port=80', '5 bytes')
    """
    if meta_bytes:
        return f"{len(meta_bytes)} bytes"
    return " ".join(f"{_text(name)}={_text(value)}" for name, value in meta.items())


def _text(text: str) -> str:
    return escape(text.encode("utf-8", "surrogatepass"))


def _duration(seconds: float) -> str:
    """
    >>> _duration(3.21), _duration(75), _duration(7_260), _duration(200_000)
    ('3.2s', '1m15s', '2h01m', '2d07h')
    """
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes}m{rest:02}s"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours}h{minutes:02}m"
    days, hours = divmod(hours, 24)
    return f"{days}d{hours:02}h"
