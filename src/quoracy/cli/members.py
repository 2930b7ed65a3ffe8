"""`quoracy members`: who is in a cluster, as one of its members sees it, once or kept up to date."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from quoracy.cli.agent_config import key_options, read_key_file
from quoracy.cli.exits import Exit
from quoracy.cli.output import Form, Output, output_options
from quoracy.cli.values import read_duration
from quoracy.errors import QuoracyError

if TYPE_CHECKING:
    from quoracy.membership.runtime.queries import AgentQuery, AgentReport

__all__ = ["command"]


@click.command("members", short_help="Who is in a cluster of agents.")
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
    """Show everyone a member of a cluster knows: the living, the suspected, the dead, those who left.

    PHI says how surprising it is that a member was not heard from since: 1 is one time in ten, 8 is one
    in a hundred million. RTT is how long its answers take. INC grows when a member contradicts a
    suspicion. On a pipe each member is one line, its columns separated by tabs; `-o value` gives the
    names of those who are present, and nothing else.

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
    from quoracy.cli.members_table import COLUMNS, cells_of, headline, json_report, table_of, warnings

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
        # Only what a person would call a change: phi and round trips are never the same twice.
        now = [(each.name, each.address, each.state, each.incarnation) for each in report.members]
        if now != shown:
            _show(output, report)
            sys.stdout.flush()
            shown = now
        await asyncio.sleep(every_s)


async def _watch_on_terminal(asking: AgentQuery, output: Output, every_s: float) -> None:
    """A screen of its own, which a change of the window's size cannot upset; the last state stays."""
    from rich.live import Live

    from quoracy.cli.members_table import screen_of

    report = await asking.ask()  # what is wrong from the start is an error, and no screen
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
