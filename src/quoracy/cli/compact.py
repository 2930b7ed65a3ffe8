"""`quoracy compact`: forget history that nobody needs any more."""

from __future__ import annotations

import click

from quoracy.cli.endpoint import Endpoint, endpoint_options
from quoracy.cli.output import Form, Output, output_options
from quoracy.errors import Compacted
from quoracy.store.api import Store

__all__ = ["command"]


@click.command("compact", short_help="Forget old history.")
@click.argument("revision", type=click.IntRange(min=1), metavar="[REV]", required=False)
@click.option("--keep", type=click.IntRange(min=0), metavar="N", help="All but the newest N revisions.")
@output_options(Form.JSON)
@endpoint_options()
def command(revision: int | None, keep: int | None, output: Output, endpoint: Endpoint) -> None:
    """Forget history before revision REV, which itself can still be read and watched from.

    What keys hold now is not touched. A Quoracy server compacts by itself (see `quoracy serve`); this
    is for doing it at once, and for an etcd that does not.

    Prints the oldest revision that is kept now. With --keep it is no error if there is less history.

    \b
    Examples:
      quoracy compact 1042
      quoracy compact --keep 1000
    """
    if (revision is None) == (keep is None):
        raise click.UsageError("give a revision, or --keep N.", click.get_current_context())

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
        except Compacted as error:  # less than that is kept already, which is all that was asked for
            return error.oldest
        return at

    at = endpoint.tell(compact, create=False)
    if output.is_json:
        output.document({"oldest_revision": at})
    else:
        output.line(f"the oldest revision is {at:,}" if output.terminal else str(at))
