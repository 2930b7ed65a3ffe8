"""The configuration of a server: its store, addresses and limits.  Values only; `run` reads them."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from quoracy.engines.embedded.retention import Retention
from quoracy.errors import InvalidRequest
from quoracy.faces.zookeeper.settings import ZooKeeperSettings
from quoracy.server.cell.config import CellConfig
from quoracy.store.rules import Limits

__all__ = [
    "Address",
    "LogConfig",
    "LogFormat",
    "LogLevel",
    "ServerConfig",
    "TlsConfig",
    "TlsVersion",
    "data_path",
    "default_cell_directory",
    "default_engine_url",
]

_PORT_MAX = 65_535

LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]
LogFormat: TypeAlias = Literal["text", "json"]
TlsVersion: TypeAlias = Literal["1.2", "1.3"]


class Address(msgspec.Struct, frozen=True):
    """Where to listen.

    >>> Address.parse("[::1]:7070")
    Address(host='::1', port=7070)
    >>> str(Address("::1", 7070))
    '[::1]:7070'
    """

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        host, colon, port = text.rpartition(":")
        bare = host.removeprefix("[").removesuffix("]")
        bracketed = host != bare
        if (
            not colon
            or not bare
            or not port.isascii()
            or not port.isdigit()
            or (":" in bare) != bracketed
        ):
            raise InvalidRequest(
                f"{text!r} is not an address. Write HOST:PORT, as in 127.0.0.1:7070 or [::1]:7070; "
                "0.0.0.0:7070 is every network this machine is on."
            )
        if int(port) > _PORT_MAX:
            raise InvalidRequest(f"port {port} does not exist; the highest is {_PORT_MAX}.")
        return cls(bare, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class TlsConfig(msgspec.Struct, frozen=True):
    """The files of an encrypted port.

    With `client_ca`, a client needs a certificate that it signed.
    """

    cert: Path
    key: Path
    client_ca: Path | None = None
    version_min: TlsVersion = "1.2"


class LogConfig(msgspec.Struct, frozen=True):
    level: LogLevel = "info"
    format: LogFormat = "text"


class ServerConfig(msgspec.Struct, frozen=True):
    """A `listen_...` of None does not serve that.

    cell: the etcd member to run, and to keep the data on; then `engine_url` is not looked at.
    tls: for `listen_etcd` and `listen_zookeeper_tls`.
    advertise_etcd: the address in the list of members that clients get; None is where it listens.
    connections_max: clients of the etcd port; one more is closed at once.
    streams_max: calls that one connection may have open; the next is refused with "try later".
    """

    engine_url: str
    listen_etcd: Address | None
    listen_http: Address | None
    listen_zookeeper: Address | None = None
    listen_zookeeper_tls: Address | None = None
    listen_zookeeper_admin: Address | None = None
    advertise_etcd: Address | None = None
    tls: TlsConfig | None = None
    limits: Limits = msgspec.field(default_factory=Limits)
    retention: Retention = msgspec.field(default_factory=Retention)
    connections_max: int = 10_000
    streams_max: int = 4_096
    zookeeper: ZooKeeperSettings = msgspec.field(default_factory=ZooKeeperSettings)
    log: LogConfig = msgspec.field(default_factory=LogConfig)
    cell: CellConfig | None = None


def default_engine_url(
    environ: Mapping[str, str] = os.environ, *, platform: str = sys.platform, home: Path | None = None
) -> str:
    """SQLite where this system keeps a user's state."""
    directory = _state_directory(environ, platform, Path.home() if home is None else home)
    return f"sqlite:{directory / 'quoracy.db'}"


def default_cell_directory(
    environ: Mapping[str, str] = os.environ, *, platform: str = sys.platform, home: Path | None = None
) -> str:
    """A directory of its own where this system keeps a user's state."""
    return str(_state_directory(environ, platform, Path.home() if home is None else home) / "cell")


def data_path(text: str) -> Path:
    """The data file that a path or a `sqlite:` URL names."""
    return Path(text.removeprefix("sqlite:"))


def _state_directory(environ: Mapping[str, str], platform: str, home: Path) -> Path:
    if platform == "win32":
        return Path(environ.get("LOCALAPPDATA") or home / "AppData" / "Local") / "quoracy"
    if platform == "darwin":
        return home / "Library" / "Application Support" / "quoracy"
    state = environ.get("XDG_STATE_HOME", "")
    # The XDG base directory specification has a relative path ignored.
    return (Path(state) if state.startswith("/") else home / ".local" / "state") / "quoracy"
