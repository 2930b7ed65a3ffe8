"""`quoracy lock` and `quoracy elect`: run a command while holding a lock, or while being the leader.

Both join a queue in the store under a lease, wait to be its first, run the command there, and leave the
queue when it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import click

from quoracy.cli.child_process import Signals, run_command
from quoracy.cli.endpoint import Endpoint, endpoint_options
from quoracy.cli.exits import Exit
from quoracy.cli.output import Form, Output, output_options
from quoracy.cli.parameters import CommandWithTail, read_bytes, read_duration, tail_of, usage_error
from quoracy.cli.text import escape, format_lease, json_bytes
from quoracy.client.held import wait_deleted
from quoracy.client.session import Session, keep_session, stop
from quoracy.clock import Clock, SystemClock
from quoracy.errors import LeaseLost
from quoracy.store.api import Store
from quoracy.store.contention import Owner, Place, join, observe, owner, wait_first

__all__ = ["elect_command", "lock_command"]


def _holder_options(waiting_help: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """--ttl, --grace and --timeout."""

    def decorate(verb: Callable[..., Any]) -> Callable[..., Any]:
        verb = click.option(
            "--timeout",
            "wait_s",
            type=read_duration,
            metavar="TIME",
            show_default="for ever",
            help=waiting_help,
        )(verb)
        verb = click.option(
            "--grace",
            "grace_s",
            type=read_duration,
            metavar="TIME",
            show_default="a fifth of --ttl",
            help="How long the command has between SIGTERM and SIGKILL if the lock is lost.",
        )(verb)
        return click.option(
            "--ttl",
            "ttl_s",
            type=read_duration,
            metavar="TIME",
            default="10s",
            show_default=True,
            help="How soon it is free again if this process dies; at least 2s.",
        )(verb)

    return decorate


@click.command("lock", cls=CommandWithTail)
@click.argument("name", type=read_bytes)
@_holder_options("How long to wait for the lock; 0 takes it only if it is free.")
@output_options(Form.JSON)
@endpoint_options(timeout=False)
def lock_command(
    name: bytes,
    ttl_s: float,
    grace_s: float | None,
    wait_s: float | None,
    output: Output,
    endpoint: Endpoint,
) -> int:
    """Wait for the lock NAME, run COMMAND while holding it, release it; the exit code is the command's.

    Without a command the lock is held until Ctrl-C.

    The command finds QUORACY_LOCK_NAME, QUORACY_LOCK_KEY, QUORACY_LEASE and QUORACY_FENCING_TOKEN in
    its environment. The token of each holder is larger than that of the one before: if whatever the
    lock protects refuses a smaller token than it has seen, a holder that was stopped for too long
    does no harm.

    If the lock is lost (its lease was revoked, or the store did not answer for so long that it may
    free the lock), the command and its children get SIGTERM, then SIGKILL after --grace, before
    anybody else can get the lock; the exit code is 5. Signals are passed on to the command. If the lock
    is not free within --timeout, the exit code is 3.

    It is etcd's lock: `etcdctl lock NAME` waits in the same queue.

    \b
    Examples:
      quoracy lock nightly-backup -- ./backup.sh --full
      quoracy lock deploy --timeout 0 -- make deploy
      quoracy lock maintenance
    """
    if not name:
        raise usage_error("the name is empty. Give one.")
    wanted = _Wanted(
        name=name,
        value=b"",
        what=f"the lock {escape(name)}",
        ttl_s=ttl_s,
        wait_s=wait_s,
        grace_s=ttl_s / 5 if grace_s is None else grace_s,
        command=tail_of(click.get_current_context()),
        variables=("QUORACY_LOCK_NAME", "QUORACY_LOCK_KEY"),
        announce=lambda place: _announce(output, place, prefix="", until="held until Ctrl-C"),
    )
    return endpoint.follow(lambda store: _acquire_and_run(store, wanted), create=True)


@click.command("elect", cls=CommandWithTail)
@click.argument("name", type=read_bytes)
@click.argument("value", type=read_bytes, required=False)
@click.option("--leader", "show_leader", is_flag=True, help="Only show who leads; exit code 3: nobody.")
@click.option("--observe", "follow", is_flag=True, help="Show who leads, and each change of that.")
@_holder_options("How long to wait to be elected.")
@output_options(Form.JSON, Form.VALUE)
@endpoint_options(timeout=False)
def elect_command(
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
    in its environment. If leadership is lost, it is stopped as by `quoracy lock`; the exit codes are
    the same. `etcdctl elect NAME` stands in the same election.

    \b
    Examples:
      quoracy elect scheduler node-7 -- ./scheduler
      quoracy elect scheduler --leader
      quoracy elect scheduler --observe -o json
    """
    tail = tail_of(click.get_current_context())
    if not name:
        raise usage_error("the name is empty. Give one.")
    if show_leader or follow:
        if (show_leader and follow) or tail or value is not None:
            raise usage_error("--leader and --observe each stand alone with NAME.")
        return _observe(name, output, endpoint) if follow else _show_leader(name, output, endpoint)
    wanted = _Wanted(
        name=name,
        value=f"{socket.gethostname()}:{os.getpid()}".encode() if value is None else value,
        what=f"the leadership of {escape(name)}",
        ttl_s=ttl_s,
        wait_s=wait_s,
        grace_s=ttl_s / 5 if grace_s is None else grace_s,
        command=tail,
        variables=("QUORACY_ELECTION_NAME", "QUORACY_LEADER_KEY"),
        announce=lambda place: _announce(
            output, place, prefix="elected: ", until="leader until Ctrl-C"
        ),
    )
    return endpoint.follow(lambda store: _acquire_and_run(store, wanted), create=True)


def _announce(output: Output, place: Place, *, prefix: str, until: str) -> None:
    """Show what is held, when there is no command."""
    if output.is_json:
        lease = format_lease(place.lease)
        output.document({**json_bytes("key", place.key), "token": place.token, "lease": lease})
    elif output.terminal:
        output.line(f"{prefix}{escape(place.key)}  token {place.token:,}")
        output.line(until, dim=True)
    else:
        output.line(f"{escape(place.key)}\t{place.token}")


# -- who leads ---------------------------------------------------------------------------------------


def _observe(name: bytes, output: Output, endpoint: Endpoint) -> int:
    async def show_changes(store: Store) -> int:
        async with contextlib.aclosing(observe(store, name)) as owners:
            async for each in owners:
                _show_owner(output, each)
        raise AssertionError("observing yields or raises")

    try:
        return endpoint.follow(show_changes)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED


def _show_leader(name: bytes, output: Output, endpoint: Endpoint) -> int:
    found = endpoint.ask(lambda store: owner(store, name))
    if found is not None:
        _show_owner(output, found)
        return Exit.DONE
    if output.is_json:
        output.document({"leader": None})
    else:
        click.echo(f"quoracy: nobody leads {escape(name)}.", err=True)
    return Exit.NO


def _show_owner(output: Output, found: Owner) -> None:
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


# -- holding it --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The lock or election that is wanted, and the command to run in it.

    what: "the lock jobs", for messages.
    variables: of the command's environment: the one for the name, and the one for the key.
    announce: shows that it is held, when there is no command.
    """

    name: bytes
    value: bytes
    what: str
    ttl_s: float
    wait_s: float | None
    grace_s: float
    command: tuple[str, ...]
    variables: tuple[str, str]
    announce: Callable[[Place], None]


async def _acquire_and_run(store: Store, wanted: _Wanted, *, clock: Clock | None = None) -> int:
    """Wait for it, run the command while holding it, release it.  The exit code."""
    clock = clock or SystemClock()
    if wanted.grace_s > wanted.ttl_s / 4:
        raise click.UsageError(
            f"--grace {wanted.grace_s:g}s is more than a quarter of --ttl {wanted.ttl_s:g}s: the "
            "command could outlive what it holds. Give it a longer --ttl."
        )
    if wanted.command and shutil.which(wanted.command[0]) is None:
        click.echo(f"quoracy: {wanted.command[0]}: there is no such command.", err=True)
        return Exit.NO_COMMAND
    with Signals().caught() as signals:
        async with keep_session(store, clock, ttl_s=wanted.ttl_s, reserve_s=wanted.grace_s) as session:
            # If waiting fails, the session's end revokes the lease, and the place goes with it.
            place = await _first_place(store, wanted, session, signals, clock)
            code = (
                place
                if isinstance(place, int)
                else await _hold(store, wanted, place, session, signals, clock)
            )
    if session.revoke_error is not None:
        click.echo(
            f"quoracy: {wanted.what} could not be released ({session.revoke_error}); the server frees "
            f"it within {session.ttl_s:g} s.",
            err=True,
        )
    return code


async def _first_place(
    store: Store, wanted: _Wanted, session: Session, signals: Signals, clock: Clock
) -> Place | int:
    """Our place in the queue, once it is the first; or the exit code if something else came first."""
    joining = asyncio.ensure_future(join(store, wanted.name, session.id, wanted.value))
    code = await _wait_for(joining, wanted, session, signals, None)
    if code is not None:
        return code
    place = joining.result()
    if place.was_first:
        return place
    # The time starts here: with --timeout 0, a lock that is free is still acquired.
    patience = None if wanted.wait_s is None else asyncio.ensure_future(clock.sleep(wanted.wait_s))
    try:
        waiting = asyncio.ensure_future(wait_first(store, place))
        code = await _wait_for(waiting, wanted, session, signals, patience)
    finally:
        if patience is not None:
            await stop(patience)
    return place if code is None else code


async def _wait_for(
    step: asyncio.Future[Any],
    wanted: _Wanted,
    session: Session,
    signals: Signals,
    patience: asyncio.Future[None] | None,
) -> int | None:
    """Wait for one step; the exit code if something else comes first."""
    either: set[asyncio.Future[Any]] = {step, session.lost, signals.ending}
    try:
        await asyncio.wait(either | ({patience} if patience else set()), return_when="FIRST_COMPLETED")
        if step.done():
            step.result()
            return None
        if signals.ending.done():
            return 128 + signals.ending.result()
        if session.lost.done():
            raise LeaseLost(f"{wanted.what}: {session.lost.result()} while waiting for it. Try again.")
        click.echo(f"quoracy: {wanted.what} was not free within {wanted.wait_s:g} s.", err=True)
        return Exit.NO
    finally:
        await stop(step)


async def _hold(
    store: Store, wanted: _Wanted, place: Place, session: Session, signals: Signals, clock: Clock
) -> int:
    taken = asyncio.ensure_future(wait_deleted(store, place.key, place.token, clock))
    lost = asyncio.ensure_future(_either(session.lost, taken))
    try:
        if wanted.command:
            ended = await run_command(
                wanted.command,
                _environment(wanted, place),
                lost=lost,
                grace_s=wanted.grace_s,
                signals=signals,
                clock=clock,
            )
            return ended.code if ended.lost is None else _lost(wanted, ended.lost)
        wanted.announce(place)
        ending: set[asyncio.Future[Any]] = {lost, signals.ending}
        await asyncio.wait(ending, return_when=asyncio.FIRST_COMPLETED)
        if lost.done():
            return _lost(wanted, lost.result())
        return 128 + signals.ending.result()
    finally:
        await stop(lost, taken)


async def _either(*reasons: asyncio.Future[str]) -> str:
    done, _ = await asyncio.wait(reasons, return_when=asyncio.FIRST_COMPLETED)
    return done.pop().result()


def _lost(wanted: _Wanted, reason: str) -> int:
    stopped = f"; {wanted.command[0]} was stopped" if wanted.command else ""
    click.echo(f"quoracy: {wanted.what} was lost: {reason}{stopped}.", err=True)
    return Exit.LOST


def _environment(wanted: _Wanted, place: Place) -> Mapping[str, str]:
    def text(data: bytes) -> str:
        # An environment variable cannot hold a NUL.
        return escape(data) if b"\0" in data else os.fsdecode(data)

    name, key = wanted.variables
    return {
        "QUORACY_FENCING_TOKEN": str(place.token),
        "QUORACY_LEASE": format_lease(place.lease),
        name: text(wanted.name),
        key: text(place.key),
    }
