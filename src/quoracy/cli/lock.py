"""`quoracy lock`: run a command while holding a lock."""

from __future__ import annotations

import click

from quoracy.cli.endpoint import Endpoint, endpoint_options
from quoracy.cli.guarding import Guarded, as_environment, guard, guard_options
from quoracy.cli.output import Form, Output, output_options
from quoracy.cli.tails import CommandWithTail, tail_of
from quoracy.cli.text import escape, format_lease, json_bytes
from quoracy.cli.values import read_bytes, read_duration
from quoracy.store.contention import Place

__all__ = ["command"]


@click.command("lock", cls=CommandWithTail, short_help="Run a command while holding a lock.")
@click.argument("name", type=read_bytes)
@guard_options
@click.option(
    "--timeout",
    "wait_s",
    type=read_duration,
    metavar="TIME",
    show_default="for ever",
    help="How long to wait for the lock; 0 takes it only if it is free.",
)
@output_options(Form.JSON)
@endpoint_options(timeout=False)
def command(
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
    its environment. The token is larger for each holder than for the one before: have whatever the
    lock protects refuse a smaller one than it has seen, and a holder that was stopped for too long
    does no harm.

    Should the lock be lost (its lease was revoked, or the store did not answer for so long that it may
    free the lock), the command and what it started get SIGTERM, then SIGKILL after --grace, before
    somebody else can get it; the exit code is 5. Signals are passed on to the command. If the lock is
    not free within --timeout, the exit code is 3.

    It is etcd's lock: `etcdctl lock NAME` waits in the same queue.

    \b
    Examples:
      quoracy lock nightly-backup -- ./backup.sh --full
      quoracy lock deploy --timeout 0 -- make deploy
      quoracy lock maintenance
    """

    def announce(place: Place) -> None:
        if output.is_json:
            output.document(
                {
                    **json_bytes("key", place.key),
                    "token": place.token,
                    "lease": format_lease(place.lease),
                }
            )
        elif output.terminal:
            output.line(f"{escape(place.key)}  token {place.token:,}")
            output.line("held until Ctrl-C", dim=True)
        else:
            output.line(f"{escape(place.key)}\t{place.token}")

    guarded = Guarded(
        name=name,
        value=b"",
        what=f"the lock {escape(name)}",
        ttl_s=ttl_s,
        wait_s=wait_s,
        grace_s=ttl_s / 5 if grace_s is None else grace_s,
        command=tail_of(click.get_current_context()),
        environment=lambda place: {
            "QUORACY_LOCK_NAME": as_environment(name),
            "QUORACY_LOCK_KEY": as_environment(place.key),
        },
        announce=announce,
    )
    if not name:
        raise click.UsageError("the name is empty. Give one.", click.get_current_context())
    return endpoint.follow(lambda store: guard(store, guarded), create=True)
