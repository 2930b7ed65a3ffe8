"""`quoracy status`: the state of each endpoint, and of the cluster below a node of a cell.

One row for each endpoint, whatever it is.  On a terminal, nodes of a cell are followed by what they
know of their cluster: whether they serve, how far behind they are, the members and who leads.  Last,
one sentence each: why a node does not serve, and warnings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from quoracy.cli.endpoint import Endpoint, endpoint_options
from quoracy.cli.exits import Exit
from quoracy.cli.output import Cell, Column, Form, Output, output_options
from quoracy.store.api import Store
from quoracy.store.model import ClusterHealth, MemberHealth

if TYPE_CHECKING:
    from quoracy.remote.maintenance import EndpointStatus

__all__ = ["command"]


@dataclass(frozen=True, slots=True)
class _Row:
    """One endpoint; None is what it does not report."""

    endpoint: str
    version: str = "-"
    revision: int | None = None
    size_bytes: int | None = None
    role: str = "-"
    term: int | None = None
    alarms: tuple[str, ...] = ()
    error: str | None = None
    warnings: tuple[str, ...] = ()
    engine: str = ""
    cluster: ClusterHealth | None = None

    @property
    def is_well(self) -> bool:
        return not (self.error or self.alarms) and (self.cluster is None or self.cluster.is_serving)


@click.command("status")
@output_options(Form.JSON)
@endpoint_options()
def command(output: Output, endpoint: Endpoint) -> int:
    """Show version, revision, size, role, term and alarms of every endpoint of the URL.

    Of a Quoracy node on an etcd cluster also whether it serves or why not, how far behind it is, and
    the members of its cluster.

    Exit code 1 if one of them cannot be reached, has an alarm or does not serve.

    \b
    Examples:
      quoracy status
      quoracy status -e etcd://10.0.0.1,10.0.0.2,10.0.0.3
      quoracy status -e sqlite:/var/lib/app/q.db
    """
    if endpoint.is_embedded:
        rows = endpoint.ask(lambda store: _embedded(endpoint.url, store))
    else:
        rows = endpoint.ask(_remote)
    if output.is_json:
        output.document({"endpoints": [_json_row(row) for row in rows]})
    else:
        _show(output, rows)
    return Exit.DONE if all(row.is_well for row in rows) else Exit.FAILED


async def _embedded(url: str, store: Store) -> list[_Row]:
    status = await store.status()
    alarms = tuple(sorted(alarm.value for alarm in status.alarms))
    return [
        _Row(url, status.engine, status.revision, status.size_bytes, role="embedded", alarms=alarms)
    ]


async def _remote(store: Store) -> list[_Row]:
    from quoracy.remote.store import RemoteStore

    assert isinstance(store, RemoteStore), "a URL is embedded or remote"
    return [_row(found) for found in await store.endpoint_status(with_cell=True)]


def _row(found: EndpointStatus) -> _Row:
    status, cell = found.status, found.cell
    if status is None or status.header is None:
        return _Row(str(found.address), error=str(found.error))
    size_bytes = status.dbSizeInUse or status.dbSize
    if cell is None:
        leads = status.leader == status.header.member_id
        return _Row(
            str(found.address),
            status.version,
            status.header.revision,
            size_bytes,
            "learner" if status.isLearner else "leader" if leads else "follower",
            status.raftTerm,
            tuple(status.errors),
            warnings=_faults(status.version),
        )
    health = cell.health
    return _Row(
        str(found.address),
        status.version,
        health.revision,
        size_bytes,
        health.role,
        status.raftTerm,
        # Other errors of its status are in its health, with more detail.
        alarms=tuple(error.strip() for error in status.errors if error.startswith("memberID:")),
        warnings=_unique(
            *health.warnings, *(fault for member in health.members for fault in _faults(member.version))
        ),
        engine=cell.engine,
        cluster=health,
    )


def _faults(version: str) -> tuple[str, ...]:
    from quoracy.remote.etcd_versions import known_faults

    fault = known_faults(version)
    return () if fault is None else (fault,)


def _unique(*texts: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))


# -- as JSON ---------------------------------------------------------------------------------


def _json_row(row: _Row) -> dict[str, object]:
    if row.error is not None:
        return {"endpoint": row.endpoint, "reachable": False, "error": row.error}
    document: dict[str, object] = {
        "endpoint": row.endpoint,
        "reachable": True,
        "version": row.version,
        "revision": row.revision,
        "size_bytes": row.size_bytes,
        "role": row.role,
        "term": row.term,
        "alarms": list(row.alarms),
        "warnings": list(row.warnings),
    }
    if row.cluster is not None:
        document["cluster"] = _json_cluster(row.engine, row.cluster)
    return document


def _json_cluster(engine: str, health: ClusterHealth) -> dict[str, object]:
    return {
        "engine": engine,
        "serving": health.is_serving,
        "reason": health.reason,
        "lag": health.lag,
        "stale_s": health.stale_s,
        "leader": health.leader,
        "members": [_json_member(member) for member in health.members],
    }


def _json_member(member: MemberHealth) -> dict[str, object]:
    return {
        "name": member.name,
        "address": member.address,
        "version": member.version,
        "role": _role_of(member),
        "revision": member.revision,
        "size_bytes": member.size_bytes,
        "error": member.error or None,
    }


def _role_of(member: MemberHealth) -> str:
    if member.error:
        return "unknown"
    return "leader" if member.is_leader else "follower"


# -- for people and pipes --------------------------------------------------------------------


def _show(output: Output, rows: list[_Row]) -> None:
    columns = (
        Column("endpoint", "cyan"),
        Column("version"),
        Column("revision", right=True),
        Column("size", right=True),
        Column("role"),
        Column("term", right=True),
        Column("alarms", "red"),
    )
    output.table(
        columns,
        [
            (
                row.endpoint,
                row.version,
                "-" if row.revision is None else row.revision,
                _size(output, row.size_bytes),
                row.role,
                "-" if row.term is None else row.term,
                _wrong(row),
            )
            for row in rows
        ],
    )
    nodes = [(row, row.cluster) for row in rows if row.cluster is not None]
    if nodes and output.terminal:
        _show_nodes(output, nodes)
        _show_members(output, [health for _, health in nodes])
    for row, health in nodes:
        if not health.is_serving:
            click.secho(f"{row.endpoint} does not serve: {health.reason}", fg="red", err=True)
    for warning in _unique(*(warning for row in rows for warning in row.warnings)):
        click.secho(f"warning: {warning}", fg="yellow", err=True)


def _wrong(row: _Row) -> str:
    not_serving = ("not serving",) if row.cluster is not None and not row.cluster.is_serving else ()
    return row.error or ", ".join(row.alarms + not_serving) or "none"


def _size(output: Output, size_bytes: int | None) -> str | int:
    if size_bytes is None:
        return "-"
    if not output.terminal:
        return size_bytes
    from quoracy.server.values import format_size

    return format_size(size_bytes)


def _show_nodes(output: Output, nodes: list[tuple[_Row, ClusterHealth]]) -> None:
    output.line("")
    output.table(
        (
            Column("node", "cyan"),
            Column("engine"),
            Column("serving"),
            Column("lag", right=True),
            Column("stale", right=True),
            Column("leader"),
        ),
        [
            (
                row.endpoint,
                row.engine or "-",
                "yes" if health.is_serving else "no",
                health.lag,
                f"{health.stale_s:.1f} s" if health.stale_s else "-",
                health.leader or "-",
            )
            for row, health in nodes
        ],
    )


def _show_members(output: Output, seen: list[ClusterHealth]) -> None:
    """Each member once, preferably as reported by a node that got an answer from it."""
    members: dict[str, MemberHealth] = {}
    for health in seen:
        for member in health.members:
            known = members.get(member.address)
            if known is None or (known.error and not member.error):
                members[member.address] = member
    if not members:
        return
    rows: list[tuple[Cell, ...]] = [
        (
            member.name,
            member.address,
            member.version or "-",
            "-" if member.error else member.revision,
            "-" if member.error else _size(output, member.size_bytes),
            _role_of(member),
            member.error or "none",
        )
        for member in members.values()
    ]
    output.line("")
    output.table(
        (
            Column("member", "cyan"),
            Column("address"),
            Column("version"),
            Column("revision", right=True),
            Column("size", right=True),
            Column("role"),
            Column("error", "red"),
        ),
        rows,
    )
