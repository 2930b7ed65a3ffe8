"""`quoracy del`: delete a key, or many."""

from __future__ import annotations

import click

from quoracy.cli.endpoint import Endpoint, endpoint_options
from quoracy.cli.exits import Exit
from quoracy.cli.output import Column, Form, Output, output_options
from quoracy.cli.selection import is_everything, selection_options
from quoracy.cli.text import json_kv
from quoracy.cli.values import read_bytes
from quoracy.store.model import Keys

__all__ = ["command"]


@click.command("del", short_help="Delete a key, or many.")
@click.argument("key", type=read_bytes)
@selection_options
@click.option("--prev", is_flag=True, help="Show what was deleted.")
@click.option("--yes", is_flag=True, help="Yes, really every key there is.")
@output_options(Form.JSON)
@endpoint_options()
def command(keys: Keys, prev: bool, yes: bool, output: Output, endpoint: Endpoint) -> int:
    """Delete KEY, or with --prefix, --from-key or --range every key they cover, in one revision.

    Prints how many keys that were; exit code 3 if there was nothing to delete.

    \b
    Examples:
      quoracy del config/colour
      quoracy del jobs/ --prefix --prev
    """
    if is_everything(keys) and not yes:
        raise click.UsageError(
            "this deletes every key there is. Add --yes if that is what you want.",
            click.get_current_context(),
        )
    result = endpoint.tell(lambda store: store.delete(keys, prev_kv=prev), create=False)
    if output.is_json:
        document: dict[str, object] = {"revision": result.revision, "deleted": result.deleted}
        if prev:
            document["prev_kvs"] = [json_kv(kv) for kv in result.prev_kvs]
        output.document(document)
    elif prev:
        output.table(
            (Column("key", "cyan"), Column("value")), [(kv.key, kv.value) for kv in result.prev_kvs]
        )
    else:
        output.line(str(result.deleted))
    return Exit.DONE if result.deleted else Exit.NO
