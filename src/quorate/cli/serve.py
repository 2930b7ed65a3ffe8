"""`quorate serve`: open a store and serve it until told to stop."""

from __future__ import annotations

import click

from quorate.cli.values import read_address, read_count, read_duration_s, read_size
from quorate.errors import InvalidRequest
from quorate.server import (
    Address,
    Limits,
    Retention,
    ServerConfig,
    Started,
    default_engine_url,
    run_server,
)
from quorate.server.units import format_count, format_size

__all__ = ["command"]


@click.command("serve", short_help="Open a store and serve it.")
@click.option(
    "--engine",
    "engine_url",
    metavar="URL",
    default=default_engine_url,
    show_default="sqlite: in your state directory",
    help="Where the data is: sqlite:PATH, or memory: for data that is gone at the end.",
)
@click.option(
    "--listen-http",
    type=read_address,
    default="127.0.0.1:7070",
    show_default=True,
    metavar="HOST:PORT|off",
    help="Where to answer /health.",
)
@click.option(
    "--quota",
    "quota_bytes",
    type=read_size,
    default="2GiB",
    show_default=True,
    metavar="SIZE",
    help="How much data to take before writes are refused.",
)
@click.option(
    "--retain-revisions",
    "revisions_max",
    type=read_count,
    default="100000",
    show_default=True,
    metavar="N|off",
    help="How many revisions of history to keep.",
)
@click.option(
    "--retain-age",
    "age_max_s",
    type=read_duration_s,
    default="1h",
    show_default=True,
    metavar="TIME|off",
    help="How long to keep history.",
)
def command(
    engine_url: str,
    listen_http: Address | None,
    quota_bytes: int,
    revisions_max: int | None,
    age_max_s: float | None,
) -> None:
    """Open a store and serve it until SIGINT or SIGTERM."""
    config = ServerConfig(
        engine_url=engine_url,
        listen_http=listen_http,
        limits=Limits(storage_bytes_max=quota_bytes),
        retention=Retention(revisions_max=revisions_max, age_max_s=age_max_s),
    )
    try:
        received = run_server(config, on_started=_show)
    except InvalidRequest as error:
        raise click.UsageError(str(error), click.get_current_context()) from error
    click.echo(f"Stopped by {received.name}; the store is closed.")


def _show(started: Started) -> None:
    status = started.status
    contents = f"revision {status.revision:,}, {format_count(status.keys_count, 'key')}"
    where = "in memory only, gone when this stops" if started.path is None else started.path
    room = f"{format_size(status.size_bytes)} of {format_size(status.size_bytes_max)}"
    click.echo(
        "\n".join(
            (
                click.style("Quorate is ready.", bold=True),
                f"  data    {where}",
                f"          {contents}, {room}",
                f"  health  {'off' if started.http is None else f'http://{started.http}/health'}",
                "Ctrl-C stops it.",
            )
        )
    )
