"""Members as a table: for a terminal, for a pipe, as JSON, and as a screen that is kept up to date.

What members say of themselves is theirs to choose, so it is escaped: no name can move a cursor.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from quoracy.cli.output import Column
from quoracy.cli.text import escape

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

    from quoracy.membership.runtime.queries import AgentReport, MemberReport

__all__ = [
    "COLUMNS",
    "cells_of",
    "headline",
    "json_meta",
    "json_report",
    "screen_of",
    "show_meta",
    "table_of",
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


def headline(report: AgentReport) -> str:
    """Who says so, and how many there are."""
    counts = Counter(member.state for member in report.members)
    states = ", ".join(f"{counts[state]} {state}" for state in _ORDER if counts[state])
    sealed = "encrypted" if report.is_encrypted else "not encrypted"
    return f"{_text(report.name)} at {_text(report.address)} sees {states}; {sealed}"


def warnings(report: AgentReport) -> list[str]:
    """What a person should know besides: a sentence each."""
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
    """For a terminal.  Of more rows than fit the last are left out, and that is said."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for column in COLUMNS:
        table.add_column(
            column.name.upper(),
            style=column.style or None,
            justify="right" if column.right else "left",
            # Where it is too narrow for all, metadata are cut first; no row ever takes a second line.
            no_wrap=column.name != "metadata",
            max_width=_NAME_WIDTH_MAX if column.name == "member" else None,
        )
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
    """The whole screen: a headline, what is wrong, and as much of the table as fits."""
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
    """What it says of itself as text, or as bytes in base64."""
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
