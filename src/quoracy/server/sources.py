"""Sources of settings: flags, the environment, the configuration file, defaults, in this order.

Each setting keeps its source, so that an error names the flag, the variable or the file and key to
change, and `--show-config` can show it.

Invariants
    * A key of the file that is no setting is an error: it is a misspelt one.
    * An empty variable counts as not set.
    * Every error is one line.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec

from quoracy.engines.embedded.retention import Retention
from quoracy.errors import InvalidRequest
from quoracy.faces.zookeeper.settings import ZooKeeperSettings
from quoracy.server import settings
from quoracy.server.cell.config import CellConfig, CellTls, choose_node
from quoracy.server.config import Address, LogConfig, ServerConfig, TlsConfig
from quoracy.server.logs import set_level
from quoracy.server.settings import LOG_LEVEL, SETTINGS, Setting, without_password
from quoracy.store.rules import Limits

__all__ = ["CONFIG_VARIABLE", "Effective", "gather", "read_settings_again"]


_log = logging.getLogger(__name__)

CONFIG_VARIABLE = "QUORACY_CONFIG"

_T = TypeVar("_T")
_LISTENERS: tuple[Setting[Address | None], ...] = (
    settings.LISTEN_ETCD,
    settings.LISTEN_HTTP,
    settings.LISTEN_ZOOKEEPER,
    settings.LISTEN_ZOOKEEPER_TLS,
    settings.LISTEN_ZOOKEEPER_ADMIN,
)
_CELL_ONLY: tuple[Setting[Any], ...] = (
    settings.NODE,
    settings.DATA_DIR,
    settings.CELL_NAME,
    settings.CELL_CERT,
    settings.CELL_KEY,
    settings.CELL_CA,
    settings.ETCD_PROGRAM,
    settings.ETCD_FLAGS,
)
_TYPE_NAMES = {str: "a string", int: "an integer", float: "a number", bool: "true or false"}


class _Given(msgspec.Struct, frozen=True):
    text: str | None
    value: object
    source: str


class Effective:
    """Every setting with the value that is in effect; made by `gather`."""

    def __init__(self, given: Mapping[Setting[Any], _Given]) -> None:
        self._given = given

    def get(self, setting: Setting[_T]) -> _T:
        return cast(_T, self._given[setting].value)

    def source(self, setting: Setting[Any]) -> str:
        """For people: `--quota`, `QUORACY_QUOTA`, `quoracy.toml: quota` or `default`."""
        return self._given[setting].source

    def rows(self) -> list[tuple[str, str, str]]:
        """Name, text and source of each setting, in the order of the table."""
        return [
            (setting.name, _shown(setting, given.text), given.source)
            for setting, given in self._given.items()
        ]

    def differences(self, other: Effective) -> list[Setting[Any]]:
        return [setting for setting in SETTINGS if self.get(setting) != other.get(setting)]

    def config(self) -> ServerConfig:
        """Raises `InvalidRequest` for settings that make no sense together."""
        self._check_listening()
        return ServerConfig(
            engine_url=self.get(settings.ENGINE),
            listen_etcd=self.get(settings.LISTEN_ETCD),
            listen_http=self.get(settings.LISTEN_HTTP),
            listen_zookeeper=self.get(settings.LISTEN_ZOOKEEPER),
            listen_zookeeper_tls=self.get(settings.LISTEN_ZOOKEEPER_TLS),
            listen_zookeeper_admin=self.get(settings.LISTEN_ZOOKEEPER_ADMIN),
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
            zookeeper=self._zookeeper(),
            log=LogConfig(self.get(settings.LOG_LEVEL), self.get(settings.LOG_FORMAT)),
            cell=self._cell(),
        )

    def _check_listening(self) -> None:
        taken: dict[Address, Setting[Any]] = {}
        for setting in _LISTENERS:
            address = self.get(setting)
            if address is None or address.port == 0:
                continue
            if address in taken:
                raise InvalidRequest(
                    f"{self._blamed(taken[address])} and {self._blamed(setting)} are both {address}. "
                    "Give each its own port."
                )
            taken[address] = setting
        if self.get(settings.LISTEN_ZOOKEEPER_TLS) is not None and self.get(settings.TLS_CERT) is None:
            needing = self.source(settings.LISTEN_ZOOKEEPER_TLS)
            raise InvalidRequest(f"{needing} needs {settings.TLS_CERT.name} as well.")
        if self.get(settings.LISTEN_ZOOKEEPER_ADMIN) is not None and (
            self.get(settings.LISTEN_ZOOKEEPER) is None
            and self.get(settings.LISTEN_ZOOKEEPER_TLS) is None
        ):
            needing = self.source(settings.LISTEN_ZOOKEEPER_ADMIN)
            raise InvalidRequest(f"{needing} needs {settings.LISTEN_ZOOKEEPER.name} as well.")

    def _blamed(self, setting: Setting[Any]) -> str:
        """What the user can change: the source, or the name of a setting that has its default."""
        source = self.source(setting)
        return setting.name if source == "default" else source

    def _cell(self) -> CellConfig | None:
        members = self.get(settings.CELL)
        if members is None:
            for setting in _CELL_ONLY:
                if self.source(setting) != "default":
                    raise InvalidRequest(f"{self.source(setting)} needs {settings.CELL.name} as well.")
            return None
        if self.source(settings.ENGINE) != "default":
            raise InvalidRequest(
                f"{self.source(settings.ENGINE)} and {self.source(settings.CELL)} both say where the "
                "data is. Give one of the two."
            )
        try:
            node = choose_node(members, self.get(settings.NODE))
        except InvalidRequest as error:
            raise InvalidRequest(f"{self._blamed(settings.NODE)}: {error}") from error
        data_dir = self.get(settings.DATA_DIR)
        assert data_dir is not None
        etcd_flags = self.get(settings.ETCD_FLAGS)
        return CellConfig(
            name=self.get(settings.CELL_NAME),
            members=members,
            node=node,
            data_dir=data_dir.absolute(),
            program=self.get(settings.ETCD_PROGRAM),
            tls=self._cell_tls(),
            flags=() if etcd_flags is None else etcd_flags,
        )

    def _cell_tls(self) -> CellTls | None:
        files = (settings.CELL_CERT, settings.CELL_KEY, settings.CELL_CA)
        cert, key, ca = (self.get(setting) for setting in files)
        if cert is not None and key is not None and ca is not None:
            return CellTls(cert.absolute(), key.absolute(), ca.absolute())
        given = [setting for setting in files if self.get(setting) is not None]
        if given:
            missing = ", ".join(each.name for each in files if self.get(each) is None)
            raise InvalidRequest(f"{self.source(given[0])} needs {missing} as well.")
        return None

    def _zookeeper(self) -> ZooKeeperSettings:
        shortest = self.get(settings.ZOOKEEPER_MIN_SESSION_TIMEOUT)
        longest = self.get(settings.ZOOKEEPER_MAX_SESSION_TIMEOUT)
        zookeeper = ZooKeeperSettings(
            tick_time=self.get(settings.ZOOKEEPER_TICK_TIME),
            min_session_timeout=-1 if shortest is None else shortest,
            max_session_timeout=-1 if longest is None else longest,
            max_client_cnxns=self.get(settings.ZOOKEEPER_MAX_CLIENT_CNXNS),
            max_cnxns=self.get(settings.ZOOKEEPER_MAX_CNXNS),
            jute_maxbuffer=self.get(settings.ZOOKEEPER_JUTE_MAXBUFFER),
            global_outstanding_limit=self.get(settings.ZOOKEEPER_GLOBAL_OUTSTANDING_LIMIT),
            commands_whitelist=self.get(settings.ZOOKEEPER_COMMANDS_WHITELIST),
            container_check_interval=self.get(settings.ZOOKEEPER_CONTAINER_CHECK_INTERVAL),
            container_max_per_minute=self.get(settings.ZOOKEEPER_CONTAINER_MAX_PER_MINUTE),
            container_max_never_used=self.get(settings.ZOOKEEPER_CONTAINER_MAX_NEVER_USED),
            extended_types_enabled=self.get(settings.ZOOKEEPER_EXTENDED_TYPES_ENABLED),
            skip_acl=self.get(settings.ZOOKEEPER_SKIP_ACL),
            super_digest=self.get(settings.ZOOKEEPER_SUPER_DIGEST),
        )
        if zookeeper.session_timeout_min > zookeeper.session_timeout_max:
            raise InvalidRequest(
                f"the shortest session timeout is {zookeeper.session_timeout_min} ms and the longest "
                f"{zookeeper.session_timeout_max} ms. Change "
                f"{settings.ZOOKEEPER_MIN_SESSION_TIMEOUT.name} or "
                f"{settings.ZOOKEEPER_MAX_SESSION_TIMEOUT.name}."
            )
        return zookeeper

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
    """Read every source.  `flags` has setting names, not flags, as its keys."""
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
    hint = f"Did you mean {near[0]}?" if near else "`quoracy serve --help` lists those there are."
    raise InvalidRequest(f"{file}: there is no setting {key!r}. {hint}")


def _text(setting: Setting[Any], value: object, source: str) -> str:
    # Not isinstance: a TOML boolean is a Python integer as well.
    if type(value) not in setting.toml_types:
        wanted = " or ".join(_TYPE_NAMES[each] for each in setting.toml_types)
        example = setting.default_text or setting.metavar
        given = "what is there" if setting.secret else repr(value)
        raise InvalidRequest(
            f'{source} must be {wanted}, as in {setting.name} = "{example}", not {given}.'
        )
    return str(value)


def _shown(setting: Setting[Any], text: str | None) -> str:
    if text is None:
        return "none"
    return "***" if setting.secret else without_password(text)


def read_settings_again(started_with: Effective, gather_again: Callable[[], Effective]) -> None:
    """On SIGHUP: the log level takes effect, and other changed settings are named in the log.

    Settings that cannot be used are logged and change nothing.
    """
    try:
        now = gather_again()
        config = now.config()
    except InvalidRequest as error:
        _log.error("the settings were not read again: %s", error)
        return
    set_level(config.log)
    _log.info("settings read again; the log level is %s", config.log.level)
    waiting = [each.name for each in started_with.differences(now) if each is not LOG_LEVEL]
    if waiting:
        _log.warning("changed, but in effect only after a restart: %s", ", ".join(waiting))
