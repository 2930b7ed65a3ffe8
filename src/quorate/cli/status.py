"""`quorate status`: how each endpoint is doing."""

from __future__ import annotations

from dataclasses import dataclass

import click

from quorate.cli.endpoint import Endpoint, endpoint_options
from quorate.cli.exits import Exit
from quorate.cli.output import Column, Form, Output, output_options
from quorate.store.api import Store

__all__ = ["command"]


@dataclass(frozen=True, slots=True)
class _Row:
    """One endpoint; what is not known there is None."""

    endpoint: str
    version: str = "-"
    revision: int | None = None
    size_bytes: int | None = None
    role: str = "-"
    term: int | None = None
    alarms: tuple[str, ...] = ()
    error: str | None = None


@click.command("status", short_help="How endpoints are doing.")
@output_options(Form.JSON)
@endpoint_options()
def command(output: Output, endpoint: Endpoint) -> int:
    """Show version, revision, size, role, term and alarms of every endpoint of the URL.

    Exit code 1 if one of them cannot be reached or has an alarm.

    \b
    Examples:
      quorate status
      quorate status -e etcd://10.0.0.1,10.0.0.2,10.0.0.3
      quorate status -e sqlite:/var/lib/app/q.db
    """
    if endpoint.is_embedded:
        rows = endpoint.ask(lambda store: _embedded(endpoint.url, store))
    else:
        rows = endpoint.ask(_remote)
    if output.is_json:
        output.document({"endpoints": [_json_row(row) for row in rows]})
    else:
        _show(output, rows)
    return Exit.FAILED if any(row.error or row.alarms for row in rows) else Exit.DONE


async def _embedded(url: str, store: Store) -> list[_Row]:
    status = await store.status()
    alarms = tuple(sorted(alarm.value for alarm in status.alarms))
    return [
        _Row(url, status.engine, status.revision, status.size_bytes, role="embedded", alarms=alarms)
    ]


async def _remote(store: Store) -> list[_Row]:
    from quorate.client.remote import RemoteStore

    assert isinstance(store, RemoteStore), "a URL is embedded or remote"
    rows = []
    for found in await store.endpoint_status():
        status = found.status
        if status is None or status.header is None:
            rows.append(_Row(str(found.address), error=str(found.error)))
            continue
        leads = status.leader == status.header.member_id
        rows.append(
            _Row(
                str(found.address),
                status.version,
                status.header.revision,
                status.dbSizeInUse or status.dbSize,
                "learner" if status.isLearner else "leader" if leads else "follower",
                status.raftTerm,
                tuple(status.errors),
            )
        )
    return rows


def _json_row(row: _Row) -> dict[str, object]:
    if row.error is not None:
        return {"endpoint": row.endpoint, "reachable": False, "error": row.error}
    return {
        "endpoint": row.endpoint,
        "reachable": True,
        "version": row.version,
        "revision": row.revision,
        "size_bytes": row.size_bytes,
        "role": row.role,
        "term": row.term,
        "alarms": list(row.alarms),
    }


def _show(output: Output, rows: list[_Row]) -> None:
    from quorate.server.units import format_size

    columns = (
        Column("endpoint", "cyan"),
        Column("version"),
        Column("revision", right=True),
        Column("size", right=True),
        Column("role"),
        Column("term", right=True),
        Column("alarms", "red"),
    )
    table: list[tuple[str | int, ...]] = []
    for row in rows:
        size: str | int = "-" if row.size_bytes is None else row.size_bytes
        if output.terminal and isinstance(size, int):
            size = format_size(size)
        table.append(
            (
                row.endpoint,
                row.version,
                "-" if row.revision is None else row.revision,
                size,
                row.role,
                "-" if row.term is None else row.term,
                row.error or ", ".join(row.alarms) or "none",
            )
        )
    output.table(columns, table)
