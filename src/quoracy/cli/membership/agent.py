"""`quoracy agent`: be a member of a cluster until a signal comes, and show what happens there.

Events go to stdout, one line each; what is wrong with this member goes to stderr.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Coroutine, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, assert_never

import click

from quoracy.cli.membership.members import json_meta, key_options, read_key_file, show_meta
from quoracy.cli.output import Form, Output, output_options
from quoracy.cli.text import escape
from quoracy.errors import InvalidRequest
from quoracy.server.runtime import loop_factory

if TYPE_CHECKING:
    from quoracy.membership import ClusterEvent, MemberView, SwimSettings
    from quoracy.membership.runtime.cluster import Cluster
    from quoracy.membership.runtime.keyring import KeyRing

__all__ = ["command", "read_settings"]


_T = TypeVar("_T")
_COLOURS = {"joined": "green", "recovered": "green", "suspected": "yellow", "died": "red"}


@dataclass(frozen=True, slots=True)
class _Config:
    bind: str
    seeds: tuple[str, ...]
    advertise: str | None
    name: str | None
    meta: dict[str, str]
    keyring: KeyRing | None
    label: str
    settings: SwimSettings


@click.group("agent", invoke_without_command=True)
@click.option(
    "--join",
    "seeds",
    multiple=True,
    metavar="HOST[:PORT]",
    help="A member that exists already; may be given again. Without it, this is the first.",
)
@click.option(
    "--bind",
    metavar="HOST:PORT",
    default="0.0.0.0:7946",
    show_default=True,
    help="Where to listen, for UDP and TCP.",
)
@click.option(
    "--advertise",
    metavar="HOST[:PORT]",
    help="The address of this member for the others.  [default: the address towards the first seed]",
)
@click.option(
    "--name",
    metavar="NAME",
    help="Its name; no two can be the same.  [default: the host's name, and the port unless "
    "it is 7946]",
)
@click.option("--meta", metavar="NAME=VALUE", multiple=True, help="Metadata that the others see.")
@key_options
@click.option("--wide", is_flag=True, help="Settings for members in several data centres.")
@click.option(
    "--set",
    "changes",
    metavar="NAME=VALUE",
    multiple=True,
    help="Another value for one of the settings, the same for all members: probe_interval_s=0.5.",
)
@output_options(Form.JSON)
@click.pass_context
def command(
    ctx: click.Context,
    seeds: tuple[str, ...],
    bind: str,
    advertise: str | None,
    name: str | None,
    meta: tuple[str, ...],
    key_file: Path | None,
    label: str,
    wide: bool,
    changes: tuple[str, ...],
    output: Output,
) -> None:
    """Be a member of a cluster until SIGINT or SIGTERM, and show who joins, is suspected, dies, leaves.

    Members find out among themselves who is alive; there is no server. A seed that does not answer is
    asked again and again. The first signal leaves, and the others know at once; a second one ends
    the process without leaving. `quoracy members` shows everyone.

    \b
    Examples:
      quoracy agent --name a --bind 127.0.0.1:7946
      quoracy agent --name b --bind 127.0.0.1:7947 --join 127.0.0.1 --meta zone=b
      quoracy agent --join seed-1.example --join seed-2.example --key-file cluster.key
    """
    if ctx.invoked_subcommand is not None:
        return
    config = _Config(
        bind=bind,
        seeds=seeds,
        advertise=advertise,
        name=name,
        meta=read_meta(meta),
        keyring=read_key_file(key_file),
        label=label,
        settings=read_settings(changes, wide=wide),
    )
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="quoracy: %(message)s")
    # Conflicts are shown as events.
    logging.getLogger("quoracy.membership.runtime.cluster").setLevel(logging.ERROR)
    _run(_be_a_member(config, _Said(output)))


@command.command("keygen", short_help="Make a key for a cluster.")
@click.argument("file", type=click.Path(path_type=Path), required=False)
def keygen(file: Path | None) -> None:
    """Make a new random key: into FILE, which only you can read, or onto stdout.

    Give the same file to every member and to `quoracy members`. How to change a key without an
    interruption is in the guide to membership.
    """
    from quoracy.membership.runtime.keyring import generate_key

    key = generate_key()
    if file is None:
        click.echo(key)
        return
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise InvalidRequest(
            f"{file} is there already; a key that is lost locks everyone out. Give another name."
        ) from error
    with os.fdopen(descriptor, "w", encoding="ascii") as stream:
        stream.write(f"{key}\n")
    click.echo(f"A new key is in {file}. Copy it to every member: --key-file {file}")


# -- running -----------------------------------------------------------------------------------------


async def _be_a_member(config: _Config, said: _Said) -> None:
    from quoracy import membership

    async with _stopping() as stopped, contextlib.AsyncExitStack() as block:
        joining = membership.join(
            bind=config.bind,
            seeds=config.seeds,
            meta=config.meta,
            name=config.name,
            advertise=config.advertise,
            keyring=config.keyring,
            label=config.label,
            settings=config.settings,
            keep_trying=True,
        )
        entering = asyncio.ensure_future(block.enter_async_context(joining))
        if not await _before(stopped, entering):
            return
        cluster = entering.result()
        events = cluster.events(current_first=True)
        said.greeting(cluster, config)
        telling = asyncio.ensure_future(_tell(events, said))
        if await _before(stopped, telling):
            # Raises if output could not be written; if the cluster failed, the block raises.
            telling.result()
        elif stopped.result() is not signal.SIGHUP:  # the terminal is gone
            said.leaving(stopped.result())


async def _before(stopped: asyncio.Future[signal.Signals], work: asyncio.Future[Any]) -> bool:
    """Whether the work ended before a signal came; if not, it is cancelled."""
    either: set[asyncio.Future[Any]] = {work, stopped}
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        return work.done()
    finally:
        if not work.done():
            work.cancel()
            await asyncio.wait({work})


async def _tell(events: AsyncIterator[ClusterEvent], said: _Said) -> None:
    async for event in events:
        said.event(event)


@contextlib.asynccontextmanager
async def _stopping() -> AsyncIterator[asyncio.Future[signal.Signals]]:
    """A future for the first signal; the next one ends the process as if there were no handler.

    SIGHUP, from a terminal that is closed, counts unless it was ignored at the start (nohup).
    """
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[signal.Signals] = loop.create_future()
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)

    def received(number: signal.Signals) -> None:
        for each in numbers:
            loop.remove_signal_handler(each)
            # A closed terminal may send SIGHUP twice: the kernel does, and so does a shell.
            signal.signal(each, signal.SIG_IGN if each is signal.SIGHUP else signal.SIG_DFL)
        stopped.set_result(number)

    for number in numbers:
        loop.add_signal_handler(number, received, number)
    try:
        yield stopped
    finally:
        if not stopped.done():
            for number in numbers:
                loop.remove_signal_handler(number)


def _run(main: Coroutine[Any, Any, _T]) -> _T:
    # Not `server.runtime.run`, which sets the collector for a server's many objects.
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(main)


# -- output ------------------------------------------------------------------------------------------


class _Said:
    """Writes one line for each event: for people, for pipes, as JSON."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._me = ""

    def greeting(self, cluster: Cluster, config: _Config) -> None:
        me = cluster.me
        self._me = me.name
        if len(cluster.members) == 1 and (why := cluster.seeds_missing):
            click.echo(f"quoracy: no seed answers yet ({why}); they are asked again.", err=True)
        if self._output.is_json:
            self._document("started", name=me.name, address=me.address, encrypted=bool(config.keyring))
            return
        sealed = "encrypted" if config.keyring is not None else "not encrypted"
        self._line("started", me.name, f"{me.address}, UDP and TCP, {sealed}")
        if self._output.terminal:
            click.secho(
                f"Others join with: quoracy agent --join {me.address}   Ctrl-C leaves.", dim=True
            )

    def event(self, event: ClusterEvent) -> None:
        from quoracy.membership import Changed, Conflict, Snapshot

        match event:
            case Changed(kind, member, by):
                self._change(kind.value, member, by)
            case Snapshot(members, missed):
                if missed:
                    self._note("missed", f"{missed} events; these are the members now")
                for member in members:
                    if member.name != self._me:
                        self._change("present", member, None)
            case Conflict(known, claimed_by):
                self._note(
                    "conflict",
                    f"{claimed_by} claims the name {known.name}, which {known.address} has; "
                    "one of them needs another --name",
                )
            case _:
                assert_never(event)

    def leaving(self, number: signal.Signals) -> None:
        if self._output.is_json:
            self._document("leaving", signal=number.name)
        else:
            self._line("leaving", "", f"{number.name}; again to end at once")

    def _change(self, kind: str, member: MemberView, by: str | None) -> None:
        if self._output.is_json:
            self._document(
                kind,
                name=member.name,
                address=member.address,
                incarnation=member.incarnation,
                by=by,
                **json_meta(member.meta, member.meta_bytes),
            )
            return
        details = [member.address, show_meta(member.meta, member.meta_bytes)]
        if kind == "suspected" and by is not None:
            details.append(f"by {escape(by.encode())}")
        self._line(kind, member.name, "  ".join(each for each in details if each))

    def _note(self, kind: str, text: str) -> None:
        if self._output.is_json:
            self._document(kind, text=text)
        else:
            self._line(kind, "", text)

    def _line(self, kind: str, name: str, details: str) -> None:
        now = datetime.datetime.now().astimezone().strftime("%H:%M:%S")
        word = f"{kind:<9}"
        if self._output.terminal:
            now, word = click.style(now, dim=True), click.style(word, fg=_COLOURS.get(kind), bold=True)
        shown = escape(name.encode())
        click.echo("  ".join(each for each in (now, word, shown, details) if each))
        sys.stdout.flush()

    def _document(self, kind: str, **fields: object) -> None:
        now = datetime.datetime.now().astimezone().isoformat(timespec="milliseconds")
        self._output.document({"event": kind, "time": now, **fields})
        sys.stdout.flush()


# -- the options as values ----------------------------------------------------------------------------


def read_meta(pairs: Iterable[str]) -> dict[str, str]:
    """
    >>> read_meta(["zone=a", "url=http://x/?a=b"])
    {'zone': 'a', 'url': 'http://x/?a=b'}
    """
    return dict(_pair(pair, "--meta", "zone=a") for pair in pairs)


def read_settings(pairs: Iterable[str], *, wide: bool) -> SwimSettings:
    """The defaults, or those for wide networks, with some replaced by name.

    >>> read_settings(["probe_interval_s=0.5"], wide=False).probe_interval_s
    0.5
    """
    import msgspec

    from quoracy.membership.settings import SwimSettings

    settings = SwimSettings.wide() if wide else SwimSettings()
    changes: dict[str, object] = {}
    kinds = {field.name: field.type for field in msgspec.structs.fields(SwimSettings)}
    for pair in pairs:
        name, text = _pair(pair, "--set", "probe_interval_s=0.5")
        if name not in kinds:
            raise InvalidRequest(f"--set {pair}: there is no {name}. Give one of {', '.join(kinds)}.")
        try:
            changes[name] = msgspec.convert(text, kinds[name], strict=False)
        except msgspec.ValidationError as error:
            raise InvalidRequest(f"--set {pair}: {error}.") from error
    return msgspec.structs.replace(settings, **changes)


def _pair(text: str, option: str, example: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise InvalidRequest(f"{option} {text}: write NAME=VALUE, as in {option} {example}.")
    return name, value
