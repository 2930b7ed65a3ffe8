"""`quoracy history`: every version of a key that the store still has.

One watch from the oldest revision that is kept brings them all, deletes too.  (Reading backwards from
`mod_revision - 1` to `mod_revision - 1` would stop at the first time the key did not exist.)
"""

from __future__ import annotations

import click

from quoracy.cli.endpoint import Endpoint, endpoint_options
from quoracy.cli.exits import Exit
from quoracy.cli.output import Column, Form, Output, output_options
from quoracy.cli.text import escape, format_lease, json_bytes, json_kv
from quoracy.cli.values import read_bytes
from quoracy.errors import Compacted
from quoracy.store.api import Store
from quoracy.store.model import KeyValue

__all__ = ["command", "read_history"]


@click.command("history", short_help="Every version of a key that is kept.")
@click.argument("key", type=read_bytes)
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the newest N.")
@click.option("--reverse", is_flag=True, help="Oldest first.")
@output_options(Form.JSON)
@endpoint_options()
def command(key: bytes, limit: int | None, reverse: bool, output: Output, endpoint: Endpoint) -> int:
    """Show every version of KEY that was not compacted away, newest first.

    On a pipe each line has revision, version (0 for a delete), lease and value, separated by tabs.

    \b
    Examples:
      quoracy history config/colour
      quoracy history config/colour --limit 3 -o json
    """
    if not key:
        raise click.UsageError("the key is empty. Give one.", click.get_current_context())
    oldest, versions = endpoint.ask(lambda store: read_history(store, key))
    found = list(reversed(versions))[:limit]
    if reverse:
        found.reverse()
    if output.is_json:
        output.document(
            {
                **json_bytes("key", key),
                "oldest_revision": oldest,
                "versions": [json_kv(kv, with_value=kv.version > 0) for kv in found],
            }
        )
    elif found:
        columns = (
            Column("revision", right=True),
            Column("version", right=True),
            Column("lease", "magenta"),
            Column("value"),
        )
        output.table(columns, [_row(kv) for kv in found])
        if oldest > 1 and output.terminal:
            output.line(f"history before revision {oldest:,} was compacted", dim=True)
    if found:
        return Exit.DONE
    if not output.is_json:
        click.echo(f"quoracy: {escape(key)} has no version since revision {oldest}.", err=True)
    return Exit.NO


async def read_history(store: Store, key: bytes) -> tuple[int, list[KeyValue]]:
    """The oldest revision that is kept, and the key's versions since, oldest first; deletes as well."""
    oldest, versions = 1, list[KeyValue]()
    while True:
        now = await store.range(key, keys_only=True)
        newest = now.kvs[0].mod_revision if now.kvs else None
        try:
            if oldest > 1:
                # What the key held then and was older than that; changes at `oldest` are watched.
                then = await store.range(key, at=oldest)
                versions = [kv for kv in then.kvs if kv.mod_revision < oldest]
            if versions and versions[-1].mod_revision == newest:
                return oldest, versions
            changes = await _changes(store, key, oldest - 1, newest, now.revision)
            return oldest, versions + changes
        except Compacted as error:
            # Compaction may go on while we read: then what it left is what there is.
            assert error.oldest > oldest, "the oldest revision that is kept can be read"
            oldest = error.oldest


async def _changes(
    store: Store, key: bytes, after: int, newest: int | None, revision: int
) -> list[KeyValue]:
    """What happened to the key after one revision, up to its newest version or to `revision`."""
    changes: list[KeyValue] = []
    async with store.watch(key, after=after) as batches:
        if newest is None:
            batches.request_progress()
        async for batch in batches:
            changes += (event.kv for event in batch.events)
            if newest is not None and batch.revision >= newest:
                break
            if newest is None and batch.revision >= revision:
                break
    return changes


def _row(kv: KeyValue) -> tuple[int | str | bytes, ...]:
    if not kv.version:
        return kv.mod_revision, 0, "-", "(deleted)"
    return kv.mod_revision, kv.version, format_lease(kv.lease) if kv.lease else "-", kv.value
