"""The verbs that look after data: `compact`, `snapshot`, `backup`, `restore` and `doctor`.

`backup`, `restore` and `doctor` work on a data file that no server has open; they import the engine
when they run, which the others do without.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from quoracy.cli.endpoint import Endpoint, endpoint_options
from quoracy.cli.output import Form, Output, output_options, progress_bar
from quoracy.cli.parameters import read_data, usage_error
from quoracy.errors import Compacted, DataUnreadable
from quoracy.store.api import Store

if TYPE_CHECKING:
    from quoracy.engines.embedded.disk.backup import BackupReport, RestoreReport

__all__ = ["backup_command", "compact_command", "doctor_command", "restore_command", "snapshot_command"]


@click.command("compact")
@click.argument("revision", type=click.IntRange(min=1), metavar="[REV]", required=False)
@click.option("--keep", type=click.IntRange(min=0), metavar="N", help="All but the newest N revisions.")
@output_options(Form.JSON)
@endpoint_options()
def compact_command(revision: int | None, keep: int | None, output: Output, endpoint: Endpoint) -> None:
    """Forget history before revision REV, which itself can still be read and watched from.

    The current values of keys stay. A Quoracy server compacts by itself (see `quoracy serve`); this
    compacts at once, or compacts an etcd that does not.

    Prints the oldest revision that is kept now. With --keep it is no error if there is less history.

    \b
    Examples:
      quoracy compact 1042
      quoracy compact --keep 1000
    """
    if (revision is None) == (keep is None):
        raise usage_error("give a revision, or --keep N.")

    async def compact(store: Store) -> int:
        if revision is not None:
            await store.compact(revision)
            return revision
        assert keep is not None
        newest = (await store.range(b"\0", count_only=True)).revision
        at = max(1, newest - keep)
        try:
            if at > 1:
                await store.compact(at)
        except Compacted as error:  # even less is kept already
            return error.oldest
        return at

    at = endpoint.tell(compact, create=False)
    if output.is_json:
        output.document({"oldest_revision": at})
    else:
        output.line(f"the oldest revision is {at:,}" if output.terminal else str(at))


@click.group("snapshot", no_args_is_help=True)
def snapshot_command() -> None:
    """A copy of a store as of one moment, taken while the store is in use.

    \b
    Examples:
      quoracy snapshot save quoracy.backup
      quoracy snapshot save etcd.snapshot -e etcd://10.0.0.1
    """


@snapshot_command.command("save", short_help="Copy the store into FILE.")
@click.argument("file", type=click.Path(path_type=Path))
@output_options(Form.JSON)
@endpoint_options(timeout=False)
def save(file: Path, output: Output, endpoint: Endpoint) -> None:
    """Copy the store into FILE, which must not exist yet; it appears when it is complete and on disk.

    A server sends a copy in its own format: `quoracy restore` restores that of a Quoracy server,
    `etcdutl snapshot restore` that of an etcd. A data file that no server has open is copied as by
    `quoracy backup`.
    """
    from quoracy.server.values import format_size

    if endpoint.is_embedded:
        _backup(read_data(endpoint.url), file)
        size_bytes = file.stat().st_size
    else:
        size_bytes = endpoint.follow(lambda store: _download(store, file))
    if output.is_json:
        output.document({"file": str(file), "size_bytes": size_bytes})
    else:
        output.line(f"{file}: {format_size(size_bytes)}" if output.terminal else str(size_bytes))


async def _download(store: Store, file: Path) -> int:
    from quoracy.remote.store import RemoteStore

    assert isinstance(store, RemoteStore), "a URL is embedded or remote"
    total = (await store.status()).size_bytes
    with progress_bar("Copying") as advance:
        return await store.snapshot(file, progress=lambda done: advance(done, max(done, total)))


@click.command("backup")
@click.argument("data", type=read_data)
@click.argument("file", type=click.Path(path_type=Path))
def backup_command(data: Path, file: Path) -> None:
    """Copy the store in the data file DATA into FILE.

    No process may have DATA open; if one has, the message names it.  A program that has a store
    open backs it up itself, while it runs, with `await store.backup(FILE)`.
    """
    report = _backup(data, file)
    click.echo(f"{file} holds {_contents(report)} as of revision {report.revision:,}.")


def _backup(data: Path, file: Path) -> BackupReport:
    from quoracy.engines.embedded.retention import Retention
    from quoracy.engines.opening import open_embedded
    from quoracy.server.runtime import run

    _require_file(data)

    async def copy() -> BackupReport:
        # Copying a store must not compact its history on the way.
        keep_everything = Retention(revisions_max=None, age_max_s=None)
        async with open_embedded(f"sqlite:{data}", retention=keep_everything) as store:
            with progress_bar("Copying") as advance:
                return await store.backup(file, progress=advance)

    return run(copy())


@click.command("restore")
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("data", type=read_data)
def restore_command(file: Path, data: Path) -> None:
    """Make the data file DATA, which must not exist yet, from the backup FILE.

    Revisions continue far above those of the backup, and everything before counts as compacted: a
    client that saw revisions which the backup lacks gets an error instead of a wrong answer.
    """
    from quoracy.engines.embedded.disk.backup import restore

    with progress_bar("Restoring") as advance:
        report = restore(file, data, progress=advance)
    click.echo(
        f"{data} holds {_contents(report)}; the backup ended at revision "
        f"{report.backup_revision:,}, this store begins at {report.revision:,}."
    )


@click.command("doctor")
@click.argument("data", type=read_data)
def doctor_command(data: Path) -> int:
    """Check the data file DATA, and say what to do about what is wrong with it.

    Nothing is changed.  Stop the server that owns the data first.  Exit code 0: healthy, 1: not.
    """
    from quoracy.engines.embedded.disk.doctor import examine

    _require_file(data)
    with progress_bar("Checking") as advance:
        report = examine(data, progress=advance)
    for finding in report.findings:
        mark = click.style("ok ", fg="green") if finding.ok else click.style("BAD", fg="red", bold=True)
        click.echo(f"{mark}  {finding.what}")
        if finding.remedy:
            click.echo(f"     {finding.remedy}")
    click.echo(f"{data} is {'healthy' if report.healthy else 'NOT healthy'}.")
    return 0 if report.healthy else 1


def _contents(report: BackupReport | RestoreReport) -> str:
    from quoracy.server.values import format_count

    return f"{format_count(report.keys_count, 'key')} and {format_count(report.leases_count, 'lease')}"


def _require_file(path: Path) -> None:
    # Opening creates what is not there; here that could only be a misspelt path.
    if not path.is_file():
        raise DataUnreadable(f"{path} is not a file. Give the path of a data file.")
