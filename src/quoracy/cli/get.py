"""`quoracy get`: read a key, or many, now or as they were."""

from __future__ import annotations

import click

from quoracy.cli.endpoint import Endpoint, endpoint_options
from quoracy.cli.exits import Exit
from quoracy.cli.output import Column, Form, Output, output_options
from quoracy.cli.revisions import At, at_option
from quoracy.cli.selection import selection_options
from quoracy.cli.text import escape, format_lease, json_kv
from quoracy.cli.values import read_bytes
from quoracy.store.api import Store
from quoracy.store.model import Keys, KeyValue, RangeResult, SortTarget

__all__ = ["command"]

_SORTS = {
    "key": SortTarget.KEY,
    "version": SortTarget.VERSION,
    "create": SortTarget.CREATE,
    "mod": SortTarget.MOD,
    "value": SortTarget.VALUE,
}


@click.command("get", short_help="Read a key, or many.")
@click.argument("key", type=read_bytes)
@selection_options
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="At most N keys.")
@click.option("--keys-only", is_flag=True, help="Leave the values out.")
@click.option("--count", "count_only", is_flag=True, help="Only how many keys there are.")
@click.option(
    "--sort",
    type=click.Choice(list(_SORTS)),
    default="key",
    show_default=True,
    help="What to order by.",
)
@click.option("--reverse", is_flag=True, help="In descending order.")
@at_option
@click.option("-l", "--long", is_flag=True, help="Show revisions, version and lease too.")
@click.option("--print-value-only", is_flag=True, help="The same as -o value.")
@output_options(Form.JSON, Form.VALUE, Form.RAW)
@endpoint_options()
def command(
    keys: Keys,
    limit: int | None,
    keys_only: bool,
    count_only: bool,
    sort: str,
    reverse: bool,
    at: At | None,
    long: bool,
    print_value_only: bool,
    output: Output,
    endpoint: Endpoint,
) -> int:
    """Read KEY: prints its value, or ends with exit code 3 if there is none.

    With --prefix, --from-key or --range it prints a line for each key: key, tab, value, with line ends
    and whatever is not text escaped as \\n, \\x1b and so on. `-o value` prints values as they are.

    \b
    Examples:
      quoracy get config/colour
      quoracy get config/ --prefix -l
      quoracy get "" --prefix --count
      quoracy get config/colour --at 1042
      quoracy get config/colour --at 5m
      quoracy get config/tls.pem -o raw > tls.pem
      quoracy get jobs/ --prefix --sort mod --reverse --limit 10
    """
    if print_value_only:
        output = Output(Form.VALUE)

    async def read(store: Store) -> tuple[RangeResult, int | None]:
        revision = None if at is None else await at.find(store)
        found = await store.range(
            keys,
            at=revision,
            limit=limit,
            sort_by=_SORTS[sort],
            descending=reverse,
            keys_only=keys_only,
            count_only=count_only,
        )
        return found, revision

    found, revision = endpoint.ask(read)
    if at is not None and revision is not None and output.terminal and not output.is_json:
        at.explain(revision)
    if output.is_json:
        output.document(
            {
                "revision": found.revision,
                **({} if revision is None else {"at": revision}),
                "count": found.count,
                "more": found.more,
                "kvs": [json_kv(kv, with_value=not keys_only) for kv in found.kvs],
            }
        )
    elif count_only:
        output.line(str(found.count))
    elif long and not output.is_values:
        _show_long(output, found.kvs, keys_only=keys_only)
    else:
        _show(output, found.kvs, single=isinstance(keys, bytes), keys_only=keys_only)
    if isinstance(keys, bytes) and not found.count:
        if not output.is_json:
            where = "" if at is None else " at that revision"
            click.echo(f"quoracy: {escape(keys)} does not exist{where}.", err=True)
        return Exit.NO
    if found.more and output.terminal and not output.is_json:
        output.line(f"{len(found.kvs):,} of {found.count:,} keys", dim=True)
    return Exit.DONE


def _show(output: Output, kvs: tuple[KeyValue, ...], *, single: bool, keys_only: bool) -> None:
    if keys_only:
        for kv in kvs:
            output.line(escape(kv.key))
    elif single or output.is_values:
        for kv in kvs:
            output.value(kv.value)
    elif kvs:
        columns = (Column("key", "cyan"), Column("value"))
        output.table(columns, [(kv.key, kv.value) for kv in kvs])


def _show_long(output: Output, kvs: tuple[KeyValue, ...], *, keys_only: bool) -> None:
    columns = [
        Column("key", "cyan"),
        Column("created", right=True),
        Column("modified", right=True),
        Column("version", right=True),
        Column("lease", "magenta"),
        Column("value"),
    ]
    rows = [
        (
            kv.key,
            kv.create_revision,
            kv.mod_revision,
            kv.version,
            format_lease(kv.lease) if kv.lease else "-",
            kv.value,
        )
        for kv in kvs
    ]
    if keys_only:
        columns, rows = columns[:-1], [row[:-1] for row in rows]  # type: ignore[misc]
    if kvs:
        output.table(columns, rows)
