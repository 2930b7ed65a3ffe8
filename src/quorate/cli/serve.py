"""`quorate serve`: open a store and serve it until told to stop."""

from __future__ import annotations

import functools
import logging
import os
from pathlib import Path

import click

from quorate.server.config import Address, ServerConfig, TlsConfig
from quorate.server.hangup import read_settings_again
from quorate.server.logs import set_up_logs
from quorate.server.run import Started, run_server
from quorate.server.settings import GROUPS, SETTINGS, in_group, without_password
from quorate.server.sources import CONFIG_VARIABLE, Effective, gather
from quorate.server.units import format_count, format_size

__all__ = ["command"]

_log = logging.getLogger(__name__)


class _Serve(click.Command):
    """The options of the table of settings, and a help page that keeps their groups together."""

    def __init__(self, name: str | None, *, params: list[click.Parameter], **rest: object) -> None:
        of_settings: list[click.Parameter] = [
            click.Option(
                [setting.flag],
                metavar=setting.metavar,
                help=f"{setting.help}  [default: {setting.default_for_people}]",
            )
            for setting in SETTINGS
            if not setting.secret
        ]
        super().__init__(name, params=of_settings + params, **rest)  # type: ignore[arg-type]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        records = {each.name: each.get_help_record(ctx) for each in self.get_params(ctx)}
        for group in GROUPS:
            with formatter.section(group):
                formatter.write_dl(
                    [record for each in in_group(group) if (record := records.pop(each.key, None))]
                )
        with formatter.section("Others"):
            formatter.write_dl([record for record in records.values() if record])


@click.command(
    "serve",
    cls=_Serve,
    short_help="Open a store and serve it.",
    epilog="Sizes are written as 500MB or 2GiB, times as 90s, 30m or 1h30m.",
)
@click.option(
    "--config",
    "file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    envvar=CONFIG_VARIABLE,
    show_envvar=True,
    help='A TOML file with settings by name, as in: listen-etcd = "0.0.0.0:2379".',
)
@click.option(
    "--show-config", is_flag=True, help="Print every setting and where it comes from, and end."
)
def command(file: Path | None, show_config: bool, **flags: str | None) -> None:
    """Open a store and serve it until SIGINT or SIGTERM.

    Each option of the first groups can also be given in the environment (--listen-etcd as
    QUORATE_LISTEN_ETCD) or in the file of --config (as listen-etcd).  An option beats the environment,
    the environment beats the file.  SIGHUP reads certificates and the log level again.
    """
    given = {name.replace("_", "-"): text for name, text in flags.items() if text is not None}
    gather_all = functools.partial(gather, given, os.environ, file=file)
    settings = gather_all()
    config = settings.config()
    if show_config:
        _show_config(settings)
        return
    set_up_logs(config.log)
    received = run_server(
        config,
        on_started=functools.partial(_greet, config),
        on_hangup=lambda: read_settings_again(settings, gather_all),
    )
    if config.log.format == "json":
        _log.info("stopped by %s", received.name)
    else:
        click.echo(f"Stopped by {received.name}; the store is closed.")


def _show_config(settings: Effective) -> None:
    rows = settings.rows()
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for name, text, source in rows:
        click.echo(f"{name:<{widths[0]}}  {text:<{widths[1]}}  {source}")


def _greet(config: ServerConfig, started: Started) -> None:
    if config.log.format == "json":  # for a machine, so is this
        _log.info(
            "ready",
            extra={
                "data": None if started.path is None else str(started.path),
                "etcd": None if started.etcd is None else str(started.etcd),
                "http": None if started.http is None else str(started.http),
                **_zookeeper_extra(started),
                "revision": started.status.revision,
            },
        )
    else:
        click.echo(_greeting(config, started))


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
    if status.size_bytes_max:  # an etcd that others run does not tell
        room += f" of {format_size(status.size_bytes_max)}"
    rows = [
        ("data", _where(config, started)),
        ("", f"{contents}, {room}"),
        ("etcd", "off" if started.etcd is None else _endpoint(started.etcd, tls)),
        *_zookeeper_rows(tls, started),
        ("health", "off" if started.http is None else f"http://{started.http}/health"),
    ]
    if started.etcd is not None:
        first, *others = _examples(started.etcd, tls)
        rows += [("try", first), *(("", other) for other in others)]
    lines = [f"  {label:<9}  {text}" for label, text in rows]
    return "\n".join([click.style("Quorate is ready.", bold=True), *lines, "Ctrl-C stops it."])


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
    """Commands that work on this machine as they stand, but for the names of a client's own files."""
    hosts = {"0.0.0.0": "127.0.0.1", "::": "::1"}
    place = Address(hosts.get(etcd.host, etcd.host), etcd.port)
    secrets = "" if tls is None else " --cacert CA"
    if tls is not None and tls.client_ca is not None:
        secrets += " --cert CERT --key KEY"
    scheme = "http" if tls is None else "https"
    endpoint = "" if str(place) == "127.0.0.1:2379" else f" -e quorate://{place}"
    return [
        f"etcdctl --endpoints {scheme}://{place}{secrets} put greeting hello",
        f"quorate put greeting hello{endpoint}{secrets}",
    ]
