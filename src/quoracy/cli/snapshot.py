"""`quoracy snapshot`: a copy of a store that goes on working meanwhile."""

from __future__ import annotations

from pathlib import Path

import click

from quoracy.cli.endpoint import Endpoint, endpoint_options
from quoracy.cli.output import Form, Output, output_options
from quoracy.cli.progress import progress_bar
from quoracy.cli.values import read_data
from quoracy.store.api import Store

__all__ = ["command"]


@click.group("snapshot", short_help="Copy a running store into a file.", no_args_is_help=True)
def command() -> None:
    """A copy of a store as it is at one moment, taken while it works.

    \b
    Examples:
      quoracy snapshot save quoracy.backup
      quoracy snapshot save etcd.snapshot -e etcd://10.0.0.1
    """


@command.command("save", short_help="Copy the store into FILE.")
@click.argument("file", type=click.Path(path_type=Path))
@output_options(Form.JSON)
@endpoint_options(timeout=False)
def save(file: Path, output: Output, endpoint: Endpoint) -> None:
    """Copy the store into FILE, which must not exist yet; it appears when it is complete and on disk.

    A server sends a copy in its own format: that of a Quoracy server is brought back by
    `quoracy restore`, that of an etcd by `etcdutl snapshot restore`. A data file that no server has
    open is copied as `quoracy backup` does.
    """
    if endpoint.is_embedded:
        size_bytes = _backup(read_data(endpoint.url), file)
    else:
        size_bytes = endpoint.follow(lambda store: _download(store, file))
    if output.is_json:
        output.document({"file": str(file), "size_bytes": size_bytes})
    else:
        from quoracy.server.units import format_size

        output.line(f"{file}: {format_size(size_bytes)}" if output.terminal else str(size_bytes))


def _backup(data: Path, file: Path) -> int:
    from quoracy.server.upkeep import backup

    with progress_bar("Copying") as advance:
        backup(data, file, progress=advance)
    return file.stat().st_size


async def _download(store: Store, file: Path) -> int:
    from quoracy.remote.store import RemoteStore

    assert isinstance(store, RemoteStore), "a URL is embedded or remote"
    total = (await store.status()).size_bytes
    with progress_bar("Copying") as advance:
        return await store.snapshot(file, progress=lambda done: advance(done, max(done, total)))
