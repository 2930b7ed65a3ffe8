"""What `lock` and `elect` share: get to the front of a queue, run a command there, step back."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import click

from quoracy.cli.exits import Exit
from quoracy.cli.running import Signals, run_command
from quoracy.cli.text import escape, format_lease
from quoracy.cli.values import read_duration
from quoracy.client.held import wait_taken
from quoracy.client.session import Session, keep_session, stop
from quoracy.clock import Clock, SystemClock
from quoracy.errors import LeaseLost
from quoracy.store.api import Store
from quoracy.store.contention import Place, join, wait_first

__all__ = ["Guarded", "as_environment", "guard", "guard_options"]


@dataclass(frozen=True, slots=True)
class Guarded:
    """What to hold, for how long to wait for it, and what to run meanwhile.

    what: "the lock jobs", for messages.
    announce: shows that it is held, when there is no command.
    """

    name: bytes
    value: bytes
    what: str
    ttl_s: float
    wait_s: float | None
    grace_s: float
    command: tuple[str, ...]
    environment: Callable[[Place], Mapping[str, str]]
    announce: Callable[[Place], None]


def guard_options(verb: Callable[..., Any]) -> Callable[..., Any]:
    """--ttl and --grace."""
    verb = click.option(
        "--grace",
        "grace_s",
        type=read_duration,
        metavar="TIME",
        show_default="a fifth of --ttl",
        help="How long the command has between SIGTERM and SIGKILL, should it be lost.",
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


async def guard(store: Store, guarded: Guarded, *, clock: Clock | None = None) -> int:
    """Wait for it, hold it, run the command, let it go.  The exit code."""
    clock = clock or SystemClock()
    if guarded.grace_s > guarded.ttl_s / 4:
        raise click.UsageError(
            f"--grace {guarded.grace_s:g}s is more than a quarter of --ttl {guarded.ttl_s:g}s: the "
            "command could outlive what it holds. Give it a longer --ttl."
        )
    if guarded.command and shutil.which(guarded.command[0]) is None:
        click.echo(f"quoracy: {guarded.command[0]}: there is no such command.", err=True)
        return Exit.NO_COMMAND
    with Signals().caught() as signals:
        async with keep_session(
            store, clock, ttl_s=guarded.ttl_s, reserve_s=guarded.grace_s
        ) as session:
            # A place that is not wanted any more goes with the lease, joined or on its way.
            place = await _first_place(store, guarded, session, signals, clock)
            code = (
                place
                if isinstance(place, int)
                else await _hold(store, guarded, place, session, signals, clock)
            )
    if session.left_behind is not None:
        click.echo(
            f"quoracy: {guarded.what} could not be released ({session.left_behind}); the server frees "
            f"it within {session.ttl_s:g} s.",
            err=True,
        )
    return code


async def _first_place(
    store: Store, guarded: Guarded, session: Session, signals: Signals, clock: Clock
) -> Place | int:
    """Our place, once it is the first; or the exit code if it did not come to that."""
    joining = asyncio.ensure_future(join(store, guarded.name, session.id, guarded.value))
    code = await _wait_for(joining, guarded, session, signals, None)
    if code is not None:
        return code
    place = joining.result()
    if place.was_first:
        return place
    # Patience starts here: with none at all, a lock that is free is still got.
    patience = None if guarded.wait_s is None else asyncio.ensure_future(clock.sleep(guarded.wait_s))
    try:
        waiting = asyncio.ensure_future(wait_first(store, place))
        code = await _wait_for(waiting, guarded, session, signals, patience)
    finally:
        if patience is not None:
            await stop(patience)
    return place if code is None else code


async def _wait_for(
    step: asyncio.Future[Any],
    guarded: Guarded,
    session: Session,
    signals: Signals,
    patience: asyncio.Future[None] | None,
) -> int | None:
    """Wait for a step on the way; the exit code if something else comes first."""
    either: set[asyncio.Future[Any]] = {step, session.lost, signals.ending}
    try:
        await asyncio.wait(either | ({patience} if patience else set()), return_when="FIRST_COMPLETED")
        if step.done():
            step.result()
            return None
        if signals.ending.done():
            return 128 + signals.ending.result()
        if session.lost.done():
            raise LeaseLost(f"{guarded.what}: {session.lost.result()} while waiting for it. Try again.")
        click.echo(f"quoracy: {guarded.what} was not free within {guarded.wait_s:g} s.", err=True)
        return Exit.NO
    finally:
        await stop(step)


async def _hold(
    store: Store,
    guarded: Guarded,
    place: Place,
    session: Session,
    signals: Signals,
    clock: Clock,
) -> int:
    taken = asyncio.ensure_future(wait_taken(store, place.key, place.token, clock))
    lost = asyncio.ensure_future(_either(session.lost, taken))
    try:
        if guarded.command:
            environment = {
                "QUORACY_FENCING_TOKEN": str(place.token),
                "QUORACY_LEASE": format_lease(place.lease),
                **guarded.environment(place),
            }
            ended = await run_command(
                guarded.command,
                environment,
                lost=lost,
                grace_s=guarded.grace_s,
                signals=signals,
                clock=clock,
            )
            return ended.code if ended.lost is None else _lost(guarded, ended.lost)
        guarded.announce(place)
        ending: set[asyncio.Future[Any]] = {lost, signals.ending}
        await asyncio.wait(ending, return_when=asyncio.FIRST_COMPLETED)
        if lost.done():
            return _lost(guarded, lost.result())
        return 128 + signals.ending.result()
    finally:
        await stop(lost, taken)


async def _either(*reasons: asyncio.Future[str]) -> str:
    done, _ = await asyncio.wait(reasons, return_when=asyncio.FIRST_COMPLETED)
    return done.pop().result()


def _lost(guarded: Guarded, reason: str) -> int:
    stopped = f"; {guarded.command[0]} was stopped" if guarded.command else ""
    click.echo(f"quoracy: {guarded.what} was lost: {reason}{stopped}.", err=True)
    return Exit.LOST


def as_environment(data: bytes) -> str:
    """Bytes for an environment variable, which cannot hold a NUL."""
    return escape(data) if b"\0" in data else os.fsdecode(data)
