"""`quoracy watch`: follow changes as they happen, and run a command for each if asked to.

A watch that loses its server resumes where it was when a server is back: every event is shown once,
in order, or the verb ends and says what it missed.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import os
from collections.abc import AsyncGenerator

import click

from quoracy.cli.endpoint import Endpoint, endpoint_options
from quoracy.cli.exits import Exit
from quoracy.cli.output import Form, Output, output_options
from quoracy.cli.parameters import CommandWithTail, read_bytes, tail_of, usage_error
from quoracy.cli.selection import select_keys
from quoracy.cli.text import escape, json_kv
from quoracy.errors import StoreClosed, Unavailable
from quoracy.store.api import Store
from quoracy.store.model import Event, EventKind, Keys, WatchBatch

__all__ = ["command"]

_RECONNECT_S = 1.0
# Batches that wait to be shown.  Beyond it the watches wait, and the store feeds them from history
# later.
_WAITING_MAX = 1_000


@click.command("watch", cls=CommandWithTail)
@click.argument("keys", type=read_bytes, nargs=-1, required=True, metavar="KEY...")
@click.option("--prefix", is_flag=True, help='Every key that starts with a KEY; "" is all.')
@click.option("--from-key", is_flag=True, help="Every KEY and the keys after it.")
@click.option(
    "--after", type=click.IntRange(min=0), metavar="REV", help="Begin with what came after REV."
)
@click.option("--prev", is_flag=True, help="Show what a key held before.")
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="End after N events.")
@click.option("--exec", "execute", is_flag=True, help="Run the command after `--` for each event.")
@output_options(Form.JSON, Form.VALUE)
@endpoint_options(timeout=False)
def command(
    keys: tuple[bytes, ...],
    prefix: bool,
    from_key: bool,
    after: int | None,
    prev: bool,
    count: int | None,
    execute: bool,
    output: Output,
    endpoint: Endpoint,
) -> int:
    """Show each change of each KEY, until Ctrl-C or --count.

    On a pipe each line has: put or delete, the key, the value, the revision, and with --prev the value
    before; separated by tabs, escaped as `quoracy get` does. The time shown on a terminal, and in JSON,
    is when the event arrived here.

    With --exec the command runs for each event, one after the other: it finds QUORACY_EVENT (put or
    delete), QUORACY_KEY and QUORACY_REVISION in its environment and the value on its stdin.

    \b
    Examples:
      quoracy watch config/ --prefix --prev
      quoracy watch config/ --prefix --after 1042 -o json
      quoracy watch config/colour --exec -- sh -c 'cat > colour.txt'
    """
    tail = tail_of(click.get_current_context())
    if execute != bool(tail):
        raise usage_error("--exec and a command after `--` go together.")
    selected = [select_keys(key, prefix=prefix, from_key=from_key) for key in keys]

    async def follow(store: Store) -> int:
        shown = 0
        async with contextlib.aclosing(_merged(store, selected, after, prev)) as batches:
            async for batch in batches:
                for event in batch.events:
                    _show(output, event)
                    if execute:
                        await _execute(tail, event)
                    shown += 1
                    if shown == count:
                        return Exit.DONE
        raise AssertionError("a watch yields or raises")

    try:
        return endpoint.follow(follow)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED


async def _merged(
    store: Store, selected: list[Keys], after: int | None, prev: bool
) -> AsyncGenerator[WatchBatch]:
    """The batches of every watch, each watch's in order."""
    if len(selected) == 1:
        async with contextlib.aclosing(_batches(store, selected[0], after, prev)) as batches:
            async for batch in batches:
                yield batch
        return
    waiting: asyncio.Queue[WatchBatch] = asyncio.Queue(_WAITING_MAX)

    async def feed(keys: Keys) -> None:
        async with contextlib.aclosing(_batches(store, keys, after, prev)) as batches:
            async for batch in batches:
                await waiting.put(batch)

    feeds = [asyncio.ensure_future(feed(keys)) for keys in selected]
    try:
        while True:
            next_batch = asyncio.ensure_future(waiting.get())
            try:
                await asyncio.wait({next_batch, *feeds}, return_when=asyncio.FIRST_COMPLETED)
                for ended in feeds:
                    if ended.done():
                        ended.result()
                batch = await next_batch
            finally:
                next_batch.cancel()
            yield batch
    finally:
        for task in feeds:
            task.cancel()
        await asyncio.gather(*feeds, return_exceptions=True)


async def _batches(
    store: Store, keys: Keys, after: int | None, prev: bool
) -> AsyncGenerator[WatchBatch]:
    """One watch, resumed where it was after the store was unreachable."""
    was_away = False
    while True:
        stream = store.watch(keys, after=after, prev_kv=prev)
        try:
            async with stream:
                if was_away:
                    click.echo("quoracy: the store is back; the watch continues.", err=True)
                    was_away = False
                after = stream.revision
                async for batch in stream:
                    after = batch.revision
                    yield batch
        except StoreClosed:
            raise
        except Unavailable as error:
            if after is None:  # it was never reachable
                raise
            if not was_away:
                click.echo(f"quoracy: {error} The watch waits for it.", err=True)
                was_away = True
            await asyncio.sleep(_RECONNECT_S)


def _show(output: Output, event: Event) -> None:
    now = datetime.datetime.now().astimezone()
    kv, prev_kv = event.kv, event.prev_kv
    is_put = event.kind is EventKind.PUT
    if output.is_json:
        document: dict[str, object] = {
            "kind": event.kind.value,
            "revision": kv.mod_revision,
            "received": now.isoformat(timespec="milliseconds"),
            "kv": json_kv(kv, with_value=is_put),
        }
        if prev_kv is not None:
            document["prev_kv"] = json_kv(prev_kv)
        output.document(document)
    elif output.is_values:
        if is_put:
            output.value(kv.value)
    elif output.terminal:
        output.line(_for_people(event, now))
    else:
        columns = [event.kind.value, escape(kv.key), escape(kv.value), str(kv.mod_revision)]
        if prev_kv is not None:
            columns.append(escape(prev_kv.value))
        output.line("\t".join(columns))


def _for_people(event: Event, now: datetime.datetime) -> str:
    kv, prev_kv = event.kv, event.prev_kv
    time = click.style(now.strftime("%H:%M:%S"), dim=True)
    revision = click.style(f"@{kv.mod_revision:,}", dim=True)
    key = click.style(escape(kv.key), fg="cyan")
    old = click.style(escape(prev_kv.value), fg="red") + " → " if prev_kv is not None else ""
    if event.kind is EventKind.DELETE:
        mark = click.style("del", fg="red", bold=True)
        return f"{time}  {mark}  {key}  {old.removesuffix(' → ')}  {revision}"
    mark = click.style("new" if event.is_create else "put", fg="green", bold=True)
    return f"{time}  {mark}  {key}  {old}{click.style(escape(kv.value), fg='green')}  {revision}"


async def _execute(tail: tuple[str, ...], event: Event) -> None:
    environment = os.environ | {
        "QUORACY_EVENT": event.kind.value,
        "QUORACY_KEY": os.fsdecode(event.kv.key).replace("\0", "\\0"),
        "QUORACY_REVISION": str(event.kv.mod_revision),
    }
    process = await asyncio.create_subprocess_exec(
        *tail, stdin=asyncio.subprocess.PIPE, env=environment
    )
    await process.communicate(event.kv.value)
    if process.returncode:
        click.echo(
            f"quoracy: {tail[0]} ended with {process.returncode} for {escape(event.kv.key)} "
            f"at revision {event.kv.mod_revision}.",
            err=True,
        )
