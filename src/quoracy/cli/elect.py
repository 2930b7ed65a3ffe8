"""`quoracy elect`: run a command while being the leader, or see who is."""

from __future__ import annotations

import contextlib
import os
import socket

import click

from quoracy.cli.endpoint import Endpoint, endpoint_options
from quoracy.cli.exits import Exit
from quoracy.cli.guarding import Guarded, as_environment, guard, guard_options
from quoracy.cli.output import Form, Output, output_options
from quoracy.cli.tails import CommandWithTail, tail_of
from quoracy.cli.text import escape, format_lease, json_bytes
from quoracy.cli.values import read_bytes, read_duration
from quoracy.store.api import Store
from quoracy.store.contention import Owner, Place, observe, owner

__all__ = ["command"]


@click.command("elect", cls=CommandWithTail, short_help="Run a command while being the leader.")
@click.argument("name", type=read_bytes)
@click.argument("value", type=read_bytes, required=False)
@click.option("--leader", "show_leader", is_flag=True, help="Only show who leads; exit code 3: nobody.")
@click.option("--observe", "follow", is_flag=True, help="Show who leads, and each change of that.")
@guard_options
@click.option(
    "--timeout",
    "wait_s",
    type=read_duration,
    metavar="TIME",
    show_default="for ever",
    help="How long to wait to be elected.",
)
@output_options(Form.JSON, Form.VALUE)
@endpoint_options(timeout=False)
def command(
    name: bytes,
    value: bytes | None,
    show_leader: bool,
    follow: bool,
    ttl_s: float,
    grace_s: float | None,
    wait_s: float | None,
    output: Output,
    endpoint: Endpoint,
) -> int:
    """Stand in the election NAME, run COMMAND once elected, resign when it ends.

    VALUE is what others see of the leader; by default host name and process id. Without a command
    leadership is held until Ctrl-C.

    The command finds QUORACY_ELECTION_NAME, QUORACY_LEADER_KEY, QUORACY_LEASE and QUORACY_FENCING_TOKEN
    in its environment. It is stopped should leadership be lost, as by `quoracy lock`; so are the exit
    codes. `etcdctl elect NAME` stands in the same election.

    \b
    Examples:
      quoracy elect scheduler node-7 -- ./scheduler
      quoracy elect scheduler --leader
      quoracy elect scheduler --observe -o json
    """
    context = click.get_current_context()
    tail = tail_of(context)
    if not name:
        raise click.UsageError("the name is empty. Give one.", context)
    if show_leader or follow:
        if (show_leader and follow) or tail or value is not None:
            raise click.UsageError("--leader and --observe each stand alone with NAME.", context)
        return _watch(name, follow, output, endpoint)
    if value is None:
        value = f"{socket.gethostname()}:{os.getpid()}".encode()
    guarded = Guarded(
        name=name,
        value=value,
        what=f"the leadership of {escape(name)}",
        ttl_s=ttl_s,
        wait_s=wait_s,
        grace_s=ttl_s / 5 if grace_s is None else grace_s,
        command=tail,
        environment=lambda place: {
            "QUORACY_ELECTION_NAME": as_environment(name),
            "QUORACY_LEADER_KEY": as_environment(place.key),
        },
        announce=lambda place: _announce(output, place),
    )
    return endpoint.follow(lambda store: guard(store, guarded), create=True)


def _announce(output: Output, place: Place) -> None:
    if output.is_json:
        lease = format_lease(place.lease)
        output.document({**json_bytes("key", place.key), "token": place.token, "lease": lease})
    elif output.terminal:
        output.line(f"elected: {escape(place.key)}  token {place.token:,}")
        output.line("leader until Ctrl-C", dim=True)
    else:
        output.line(f"{escape(place.key)}\t{place.token}")


def _watch(name: bytes, follow: bool, output: Output, endpoint: Endpoint) -> int:
    async def show_changes(store: Store) -> int:
        async with contextlib.aclosing(observe(store, name)) as owners:
            async for each in owners:
                _show(output, each)
        raise AssertionError("observing yields or raises")

    if follow:
        try:
            return endpoint.follow(show_changes)
        except KeyboardInterrupt:
            return Exit.INTERRUPTED
    found = endpoint.ask(lambda store: owner(store, name))
    if found is None:
        if not output.is_json:
            click.echo(f"quoracy: nobody leads {escape(name)}.", err=True)
        else:
            output.document({"leader": None})
        return Exit.NO
    _show(output, found)
    return Exit.DONE


def _show(output: Output, found: Owner) -> None:
    kv = found.kv
    if output.is_json:
        leader = {
            **json_bytes("key", kv.key),
            **json_bytes("value", kv.value),
            "token": kv.create_revision,
            "lease": format_lease(kv.lease),
        }
        output.document({"leader": leader, "revision": found.revision})
    elif output.is_values:
        output.value(kv.value)
    else:
        token = f"token {kv.create_revision:,}" if output.terminal else str(kv.create_revision)
        separator = "  " if output.terminal else "\t"
        output.line(separator.join((escape(kv.value), escape(kv.key), token)))
