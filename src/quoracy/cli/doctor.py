"""`quoracy doctor`: is this data sound, and if not, what helps?"""

from __future__ import annotations

from pathlib import Path

import click

from quoracy.cli.progress import progress_bar
from quoracy.cli.values import read_data
from quoracy.server.upkeep import examine

__all__ = ["command"]


@click.command("doctor", short_help="Check a data file.")
@click.argument("data", type=read_data)
def command(data: Path) -> int:
    """Check the data file DATA and say what to do about what is wrong with it.

    Nothing is changed.  Stop the server that owns the data first.  Exit code 0: healthy, 1: not.
    """
    with progress_bar("Checking") as advance:
        report = examine(data, progress=advance)
    for finding in report.findings:
        mark = click.style("ok ", fg="green") if finding.ok else click.style("BAD", fg="red", bold=True)
        click.echo(f"{mark}  {finding.what}")
        if finding.remedy:
            click.echo(f"     {finding.remedy}")
    click.echo(f"{data} is {'healthy' if report.healthy else 'NOT healthy'}.")
    return 0 if report.healthy else 1
