"""`quoracy restore`: a new store from a backup."""

from __future__ import annotations

from pathlib import Path

import click

from quoracy.cli.progress import progress_bar
from quoracy.cli.values import read_data
from quoracy.server.units import format_count
from quoracy.server.upkeep import restore

__all__ = ["command"]


@click.command("restore", short_help="Make a store from a backup.")
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("data", type=read_data)
def command(file: Path, data: Path) -> None:
    """Make the data file DATA, which must not exist yet, from the backup FILE.

    Revisions go on far above those of the backup, and everything before counts as compacted, so that
    clients which saw the lost future notice instead of going on with it.
    """
    with progress_bar("Restoring") as advance:
        report = restore(file, data, progress=advance)
    click.echo(
        f"{data} holds {format_count(report.keys_count, 'key')} and "
        f"{format_count(report.leases_count, 'lease')}; the backup ended at revision "
        f"{report.backup_revision:,}, this store begins at {report.revision:,}."
    )
