"""Where settings come from, and which of them wins.

A flag beats the environment, the environment beats the configuration file, the file beats the default.
What each setting turned out to be keeps its source, so that an error names the flag, the variable or
the file and key to change, and `--show-config` can tell.

Invariants
    * A key of the file that is no setting is an error, never ignored: it is a misspelt one.
    * A variable that is set to nothing is not set.
    * Every error is one line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

from quorate.engines.embedded.retention import Retention
from quorate.errors import InvalidRequest
from quorate.server import settings
from quorate.server.config import Address, LogConfig, ServerConfig, TlsConfig
from quorate.server.settings import SETTINGS, Setting, without_password
from quorate.store.rules import Limits

__all__ = ["CONFIG_VARIABLE", "Effective", "gather"]

CONFIG_VARIABLE = "QUORATE_CONFIG"

_T = TypeVar("_T")
_TYPE_NAMES = {str: "a string", int: "an integer", float: "a number"}


@dataclass(frozen=True, slots=True)
class _Given:
    text: str | None
    value: object
    source: str


class Effective:
    """Every setting as it is in the end; made by `gather`."""

    def __init__(self, given: Mapping[Setting[Any], _Given]) -> None:
        self._given = given

    def get(self, setting: Setting[_T]) -> _T:
        return cast(_T, self._given[setting].value)

    def source(self, setting: Setting[Any]) -> str:
        """For people: `--quota`, `QUORATE_QUOTA`, `quorate.toml: quota` or `default`."""
        return self._given[setting].source

    def rows(self) -> list[tuple[str, str, str]]:
        """Name, text and source of each setting, in the order of the table."""
        return [
            (setting.name, without_password(given.text or "none"), given.source)
            for setting, given in self._given.items()
        ]

    def differences(self, other: Effective) -> list[Setting[Any]]:
        return [setting for setting in SETTINGS if self.get(setting) != other.get(setting)]

    def config(self) -> ServerConfig:
        """Raises `InvalidRequest` for settings that make no sense together."""
        return ServerConfig(
            engine_url=self.get(settings.ENGINE),
            listen_etcd=self._listen_etcd(),
            listen_http=self.get(settings.LISTEN_HTTP),
            advertise_etcd=self.get(settings.ADVERTISE_ETCD),
            tls=self._tls(),
            limits=Limits(
                storage_bytes_max=self.get(settings.QUOTA),
                request_bytes_max=self.get(settings.REQUEST_BYTES_MAX),
                txn_ops_max=self.get(settings.TXN_OPS_MAX),
            ),
            retention=Retention(
                revisions_max=self.get(settings.RETAIN_REVISIONS),
                age_max_s=self.get(settings.RETAIN_AGE),
            ),
            connections_max=self.get(settings.CONNECTIONS_MAX),
            streams_max=self.get(settings.STREAMS_MAX),
            log=LogConfig(self.get(settings.LOG_LEVEL), self.get(settings.LOG_FORMAT)),
        )

    def _listen_etcd(self) -> Address | None:
        etcd, http = self.get(settings.LISTEN_ETCD), self.get(settings.LISTEN_HTTP)
        if etcd is not None and etcd == http and etcd.port != 0:
            raise InvalidRequest(
                f"{self.source(settings.LISTEN_ETCD)} and {self.source(settings.LISTEN_HTTP)} are both "
                f"{etcd}. Give each its own port."
            )
        return etcd

    def _tls(self) -> TlsConfig | None:
        cert, key = self.get(settings.TLS_CERT), self.get(settings.TLS_KEY)
        client_ca = self.get(settings.TLS_CLIENT_CA)
        if cert is not None and key is not None:
            return TlsConfig(cert, key, client_ca, self.get(settings.TLS_MIN))
        for given, missing in (
            (settings.TLS_CERT, settings.TLS_KEY),
            (settings.TLS_KEY, settings.TLS_CERT),
            (settings.TLS_CLIENT_CA, settings.TLS_CERT),
        ):
            if self.get(given) is not None:
                raise InvalidRequest(f"{self.source(given)} needs {missing.name} as well.")
        return None


def gather(flags: Mapping[str, str], environ: Mapping[str, str], *, file: Path | None) -> Effective:
    """Read every source.  `flags` has the names of the settings that were given as flags."""
    in_file = {} if file is None else _read_file(file)
    return Effective({setting: _give(setting, flags, environ, in_file) for setting in SETTINGS})


def _give(
    setting: Setting[Any],
    flags: Mapping[str, str],
    environ: Mapping[str, str],
    in_file: Mapping[str, tuple[str, str]],
) -> _Given:
    text: str | None
    if setting.name in flags:
        text, source = flags[setting.name], setting.flag
    elif environ.get(setting.variable):
        text, source = environ[setting.variable], setting.variable
    elif setting.name in in_file:
        text, source = in_file[setting.name]
    else:
        text, source = setting.default_text, "default"
    if text is None:
        return _Given(None, None, source)
    if not text:
        raise InvalidRequest(f"{source} is empty. Write {setting.metavar}, or leave it out.")
    try:
        return _Given(text, setting.parse(text), source)
    except InvalidRequest as error:
        raise InvalidRequest(f"{source}: {error}") from error


def _read_file(file: Path) -> dict[str, tuple[str, str]]:
    """Name -> text and source."""
    import tomllib

    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidRequest(f"{file} cannot be read: {error.strerror or error}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise InvalidRequest(f"{file} is not TOML: {reason}.") from error
    found: dict[str, tuple[str, str]] = {}
    for key, value in content.items():
        setting = _setting(key, file)
        if setting.name in found:
            raise InvalidRequest(f"{file}: {setting.name} is there twice, with - and with _.")
        found[setting.name] = _text(setting, value, f"{file}: {key}"), f"{file}: {key}"
    return found


def _setting(key: str, file: Path) -> Setting[Any]:
    names = {setting.name: setting for setting in SETTINGS}
    name = key.replace("_", "-")
    if name in names:
        return names[name]
    import difflib

    near = difflib.get_close_matches(name.lower(), names, n=1)
    hint = f"Did you mean {near[0]}?" if near else "`quorate serve --help` lists those there are."
    raise InvalidRequest(f"{file}: there is no setting {key!r}. {hint}")


def _text(setting: Setting[Any], value: object, source: str) -> str:
    # Not isinstance: a TOML boolean is a Python integer as well.
    if type(value) not in setting.toml_types:
        wanted = " or ".join(_TYPE_NAMES[each] for each in setting.toml_types)
        example = setting.default_text or setting.metavar
        raise InvalidRequest(
            f'{source} must be {wanted}, as in {setting.name} = "{example}", not {value!r}.'
        )
    return str(value)
