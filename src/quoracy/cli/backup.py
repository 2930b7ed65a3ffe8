"""`quoracy backup`: a store as one file, to put away."""

from __future__ import annotations

from pathlib import Path

import click

from quoracy.cli.progress import progress_bar
from quoracy.cli.values import read_data
from quoracy.server.units import format_count
from quoracy.server.upkeep import backup

__all__ = ["command"]


@click.command("backup", short_help="Copy a store into one file.")
@click.argument("data", type=read_data)
@click.argument("file", type=click.Path(path_type=Path))
def command(data: Path, file: Path) -> None:
    """Copy the store in the data file DATA into FILE.

    No server may have DATA open: the message says which process does.  A program that has a store
    open backs it up itself, while it runs, with `await store.backup(FILE)`.
    """
    with progress_bar("Copying") as advance:
        report = backup(data, file, progress=advance)
    click.echo(
        f"{file} holds {format_count(report.keys_count, 'key')} and "
        f"{format_count(report.leases_count, 'lease')} as of revision {report.revision:,}."
    )
