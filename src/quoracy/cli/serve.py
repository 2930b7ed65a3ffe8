"""`quoracy serve` without click: the usual command line, the server it starts, the greeting.

A server that is started as usual, by flags with values, keeps neither click nor what it imports in
memory: `serve_plainly` reads such a command line itself, and leaves any other to `serve_verb.py`, which
can explain.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from quoracy.cli.exits import carry_out, while_read
from quoracy.compiled import compile_command, is_compiled
from quoracy.server.config import Address, ServerConfig, TlsConfig
from quoracy.server.logs import set_up_logs
from quoracy.server.settings import SETTINGS, without_password
from quoracy.server.sources import CONFIG_VARIABLE, gather, read_settings_again
from quoracy.server.values import format_count, format_size

if TYPE_CHECKING:
    from quoracy.server.run import Started

__all__ = ["plain_flags", "serve", "serve_plainly", "show_config"]


_log = logging.getLogger(__name__)

_CONFIG_FLAG = "--config"


def serve_plainly(arguments: Sequence[str]) -> int | None:
    """Serve as the arguments of the verb say; the exit code, or None if only click can read them."""
    flags = plain_flags(arguments)
    if flags is None:
        return None
    file = flags.pop(_CONFIG_FLAG, os.environ.get(CONFIG_VARIABLE))
    given = {flag.removeprefix("--"): text for flag, text in flags.items()}
    return carry_out(lambda: while_read(lambda: serve(given, Path(file) if file else None)))


def plain_flags(arguments: Sequence[str]) -> dict[str, str] | None:
    """Flag -> value, if there is nothing else: no request for help, nothing misspelt or missing.

    As click reads it: a value is `--flag VALUE` or `--flag=VALUE`, and the last one counts.
    """
    known = {setting.flag for setting in SETTINGS if not setting.secret} | {_CONFIG_FLAG}
    flags: dict[str, str] = {}
    rest = iter(arguments)
    for argument in rest:
        flag, equals, text = argument.partition("=")
        value = text if equals else next(rest, None)
        if flag not in known or value is None:
            return None
        flags[flag] = value
    return flags


def serve(given: Mapping[str, str], file: Path | None) -> None:
    """Serve until a signal stops it; `given` has the settings that were given as flags, by name."""
    gather_all = functools.partial(gather, given, os.environ, file=file)
    settings = gather_all()
    config = settings.config()
    set_up_logs(config.log)
    from quoracy.server.run import run_server

    received = run_server(
        config,
        on_started=functools.partial(_greet, config),
        on_hangup=lambda: read_settings_again(settings, gather_all),
    )
    if config.log.format == "json":
        _log.info("stopped by %s", received.name)
    else:
        _say(f"Stopped by {received.name}; the store is closed.")


def show_config(given: Mapping[str, str], file: Path | None) -> None:
    """Print every setting and where it comes from."""
    settings = gather(given, os.environ, file=file)
    settings.config()  # raises if they contradict each other
    rows = settings.rows()
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for name, text, source in rows:
        _say(f"{name:<{widths[0]}}  {text:<{widths[1]}}  {source}")


def _greet(config: ServerConfig, started: Started) -> None:
    if config.log.format == "json":  # a machine reads it
        _log.info(
            "ready",
            extra={
                "data": None if started.path is None else str(started.path),
                "etcd": None if started.etcd is None else str(started.etcd),
                "http": None if started.http is None else str(started.http),
                **_zookeeper_extra(started),
                "revision": started.status.revision,
                "compiled": is_compiled(),
                "compile_with": compile_command(),
            },
        )
    else:
        _say(_greeting(config, started))


def _where(config: ServerConfig, started: Started) -> str:
    if config.cell is not None:
        cell = config.cell
        names = ", ".join(member.name for member in cell.members)
        return f"{cell.etcd_dir}, member {cell.node} of {names} in the cell {cell.name}"
    if config.engine_url.startswith("etcd:"):
        return without_password(config.engine_url)
    return "in memory only, gone when this stops" if started.path is None else str(started.path)


def _greeting(config: ServerConfig, started: Started) -> str:
    status, tls = started.status, config.tls
    contents = f"revision {status.revision:,}, {format_count(status.keys_count, 'key')}"
    room = format_size(status.size_bytes)
    if status.size_bytes_max:  # an etcd that others run does not report it
        room += f" of {format_size(status.size_bytes_max)}"
    rows = [
        ("data", _where(config, started)),
        ("", f"{contents}, {room}"),
        ("etcd", "off" if started.etcd is None else _endpoint(started.etcd, tls)),
        *_zookeeper_rows(tls, started),
        ("health", "off" if started.http is None else f"http://{started.http}/health"),
    ]
    if (command := compile_command()) is not None:
        rows.append(("speed", f"runs from source; faster once compiled: {command}"))
    if started.etcd is not None:
        first, *others = _examples(started.etcd, tls)
        rows += [("try", first), *(("", other) for other in others)]
    lines = [f"  {label:<9}  {text}" for label, text in rows]
    return "\n".join([_bold("Quoracy is ready."), *lines, "Ctrl-C stops it."])


def _zookeeper_rows(tls: TlsConfig | None, started: Started) -> list[tuple[str, str]]:
    places = []
    if started.zookeeper is not None:
        places.append(_endpoint(started.zookeeper, None))
    if started.zookeeper_tls is not None:
        places.append(_endpoint(started.zookeeper_tls, tls))
    if started.zookeeper_admin is not None:
        places.append(f"http://{started.zookeeper_admin}/commands")
    first, *others = places or ["off"]
    return [("zookeeper", first), *(("", other) for other in others)]


def _zookeeper_extra(started: Started) -> dict[str, str | None]:
    addresses = {
        "zookeeper": started.zookeeper,
        "zookeeper_tls": started.zookeeper_tls,
        "zookeeper_admin": started.zookeeper_admin,
    }
    return {name: None if each is None else str(each) for name, each in addresses.items()}


def _endpoint(etcd: Address, tls: TlsConfig | None) -> str:
    if tls is None:
        return f"{etcd}, not encrypted"
    return f"{etcd}, TLS{'' if tls.client_ca is None else ' with client certificates'}"


def _examples(etcd: Address, tls: TlsConfig | None) -> list[str]:
    """Commands that work on this machine, once CA, CERT and KEY are replaced."""
    hosts = {"0.0.0.0": "127.0.0.1", "::": "::1"}
    place = Address(hosts.get(etcd.host, etcd.host), etcd.port)
    secrets = "" if tls is None else " --cacert CA"
    if tls is not None and tls.client_ca is not None:
        secrets += " --cert CERT --key KEY"
    scheme = "http" if tls is None else "https"
    endpoint = "" if str(place) == "127.0.0.1:2379" else f" -e quoracy://{place}"
    return [
        f"etcdctl --endpoints {scheme}://{place}{secrets} put greeting hello",
        f"quoracy put greeting hello{endpoint}{secrets}",
    ]


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _bold(text: str) -> str:
    # Not every console of Windows understands this sequence.
    is_understood = sys.platform != "win32" and sys.stdout.isatty()
    return f"\x1b[1m{text}\x1b[0m" if is_understood else text
