"""`quoracy lease`: grant, renew, show and revoke leases.  Ids are hexadecimal, as in etcdctl."""

from __future__ import annotations

import asyncio

import click

from quoracy.cli.endpoint import Endpoint, endpoint_options
from quoracy.cli.exits import Exit
from quoracy.cli.output import Column, Form, Output, output_options
from quoracy.cli.parameters import read_duration, read_lease
from quoracy.cli.text import escape, format_lease, json_bytes
from quoracy.errors import Indeterminate, LeaseLost, LeaseNotFound, Unavailable
from quoracy.store.api import Store
from quoracy.store.model import LeaseId, LeaseStatus

__all__ = ["command"]


@click.group("lease", no_args_is_help=True)
def command() -> None:
    """A lease is a time to live that its owner renews; when it ends, its keys go with it.

    \b
    Examples:
      lease=$(quoracy lease grant 60s)
      quoracy put members/ada up --lease $lease
      quoracy lease keep-alive $lease
    """


@command.command("grant", short_help="Make a lease.")
@click.argument("ttl_s", type=read_duration, metavar="TTL")
@click.option("--id", "lease", type=read_lease, metavar="ID", help="This id, if it is free.")
@output_options(Form.JSON)
@endpoint_options()
def grant(ttl_s: float, lease: int | None, output: Output, endpoint: Endpoint) -> None:
    """Make a lease that lives for TTL (10, 90s, 5m) unless it is renewed; prints its id."""
    chosen = None if lease is None else LeaseId(lease)
    granted = endpoint.tell(lambda store: store.grant(ttl_s, id=chosen))
    if output.is_json:
        output.document({"id": format_lease(granted.id), "ttl_s": granted.ttl_s})
    elif output.terminal:
        output.line(f"{format_lease(granted.id)}  lives {granted.ttl_s:g} s")
    else:
        output.line(format_lease(granted.id))


@command.command("revoke", short_help="End a lease and delete its keys.")
@click.argument("lease", type=read_lease, metavar="ID")
@output_options(Form.JSON)
@endpoint_options()
def revoke(lease: int, output: Output, endpoint: Endpoint) -> None:
    """End the lease ID and delete its keys, in one revision; exit code 3 if there is no such lease."""
    revision = endpoint.tell(lambda store: store.revoke(lease), create=False)
    if output.is_json:
        output.document({"id": format_lease(lease), "revision": revision})
    elif output.terminal:
        output.line(f"{format_lease(lease)} revoked")


@command.command("keep-alive", short_help="Renew a lease, once or as long as this runs.")
@click.argument("lease", type=read_lease, metavar="ID")
@click.option("--once", is_flag=True, help="Only now.")
@output_options(Form.JSON)
@endpoint_options()
def keep_alive(lease: int, once: bool, output: Output, endpoint: Endpoint) -> int:
    """Renew the lease ID at each third of its time to live, until Ctrl-C.

    Exit code 3 if there is no such lease, 5 if it ends meanwhile.
    """

    def show(ttl_s: float) -> None:
        if output.is_json:
            output.document({"id": format_lease(lease), "ttl_s": ttl_s})
        else:
            output.line(f"{format_lease(lease)} renewed for {ttl_s:g} s")

    if once:
        show(endpoint.tell(lambda store: store.keep_alive(lease), create=False).ttl_s)
        return Exit.DONE

    async def keep(store: Store) -> int:
        ttl_s = (await store.keep_alive(lease)).ttl_s
        show(ttl_s)
        while True:
            await asyncio.sleep(ttl_s / 3)
            try:
                ttl_s = (await store.keep_alive(lease)).ttl_s
            except LeaseNotFound as error:
                raise LeaseLost(f"lease {format_lease(lease)} ended or was revoked.") from error
            except (Unavailable, Indeterminate) as error:
                # The store may be back before the lease ends.
                click.echo(f"quoracy: {error} Trying again.", err=True)
            else:
                show(ttl_s)

    try:
        return endpoint.follow(keep)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED


@command.command("ttl", short_help="How long a lease has left.")
@click.argument("lease", type=read_lease, metavar="ID")
@click.option("--keys", is_flag=True, help="The keys that go with it too.")
@output_options(Form.JSON)
@endpoint_options()
def ttl(lease: int, keys: bool, output: Output, endpoint: Endpoint) -> None:
    """Show how many seconds the lease ID has left of how many; exit code 3 if there is none."""
    status = endpoint.ask(lambda store: store.time_to_live(lease, keys=keys))
    if output.is_json:
        document: dict[str, object] = {
            "id": format_lease(lease),
            "ttl_s": status.ttl_s,
            "remaining_s": status.remaining_s,
        }
        if keys:
            document["keys"] = [json_bytes("key", key) for key in status.keys]
        output.document(document)
        return
    if output.terminal:
        output.line(f"{status.remaining_s:.1f} s left of {status.ttl_s:g} s")
    else:
        output.line(f"{status.remaining_s:.3f}\t{status.ttl_s:g}")
    for key in status.keys:
        output.line(escape(key))


@command.command("list", short_help="Every lease there is.")
@output_options(Form.JSON)
@endpoint_options()
def list_leases(output: Output, endpoint: Endpoint) -> None:
    """Show every lease, with what it has left, its time to live and how many keys it holds."""

    async def read(store: Store) -> list[LeaseStatus]:
        found = []
        for lease in await store.leases():
            try:
                found.append(await store.time_to_live(lease, keys=True))
            except LeaseNotFound:
                continue  # it ended meanwhile
        return found

    found = endpoint.ask(read)
    if output.is_json:
        output.document(
            {
                "leases": [
                    {
                        "id": format_lease(lease.id),
                        "ttl_s": lease.ttl_s,
                        "remaining_s": lease.remaining_s,
                        "keys_count": len(lease.keys),
                    }
                    for lease in found
                ]
            }
        )
        return
    columns = (
        Column("lease", "magenta"),
        Column("left", right=True),
        Column("ttl", right=True),
        Column("keys", right=True),
    )
    rows = [
        (format_lease(each.id), f"{each.remaining_s:.1f}", f"{each.ttl_s:g}", len(each.keys))
        for each in found
    ]
    if rows:
        output.table(columns, rows)
