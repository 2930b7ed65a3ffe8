"""Everything `quorate serve` can be told, in one table.

A setting has one name.  The flag `--listen-etcd`, the variable `QUORATE_LISTEN_ETCD`, the key
`listen-etcd` of the configuration file, the help text and the table in the guide are all derived from
it.  Each source gives text, or what TOML makes of it, and one parser reads them all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, TypeVar, cast, get_args

from quorate.errors import InvalidRequest
from quorate.server.config import Address, LogFormat, LogLevel, TlsVersion, default_engine_url
from quorate.server.units import parse_duration_s, parse_size

__all__ = ["GROUPS", "SETTINGS", "Setting", "in_group", "without_password"]

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Setting(Generic[_T]):
    """One thing that can be set.

    default: text as a user would write it; None leaves the setting out.
    default_shown: for a default that differs from one machine to the next.
    toml_types: what a configuration file may write it as; all are brought to text and parsed.
    """

    name: str
    group: str
    metavar: str
    parse: Callable[[str], _T]
    help: str
    default: str | Callable[[], str] | None
    toml_types: tuple[type, ...] = (str,)
    default_shown: str | None = None

    @property
    def flag(self) -> str:
        return f"--{self.name}"

    @property
    def variable(self) -> str:
        return f"QUORATE_{self.key.upper()}"

    @property
    def key(self) -> str:
        return self.name.replace("-", "_")

    @property
    def default_text(self) -> str | None:
        return self.default() if callable(self.default) else self.default

    @property
    def default_for_people(self) -> str:
        return self.default_shown or self.default_text or "none"


# -- readers: text in, value out, `InvalidRequest` for what cannot be meant


def _or_off(parse: Callable[[str], _T]) -> Callable[[str], _T | None]:
    return lambda text: None if text == "off" else parse(text)


def _count(text: str) -> int:
    digits = text.replace("_", "").replace(",", "")
    if not (digits.isascii() and digits.isdigit()) or int(digits) == 0:
        raise InvalidRequest(f"{text!r} is not a number above 0.")
    return int(digits)


def _size(text: str) -> int:
    size_bytes = parse_size(text)
    if size_bytes == 0:
        raise InvalidRequest(f"{text!r} leaves room for nothing; give more than 0 bytes.")
    return size_bytes


def _duration_s(text: str) -> float:
    seconds = parse_duration_s(text)
    if seconds == 0:
        raise InvalidRequest(f"{text!r} is no time at all; give more, or off.")
    return seconds


def _file(text: str) -> Path | None:
    return Path(text).expanduser()


def _one_of(*choices: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in choices:
            raise InvalidRequest(f"{text!r} is not one of {', '.join(choices)}.")
        return text

    return read


_log_level = cast("Callable[[str], LogLevel]", _one_of(*get_args(LogLevel)))
_log_format = cast("Callable[[str], LogFormat]", _one_of(*get_args(LogFormat)))
_tls_version = cast("Callable[[str], TlsVersion]", _one_of(*get_args(TlsVersion)))


# -- the table

_DATA = "Data"
_LISTENING = "Listening"
_TLS = "TLS on the etcd port"
_LIMITS = "Limits"
_LOGS = "Logs"
GROUPS: Final = (_DATA, _LISTENING, _TLS, _LIMITS, _LOGS)

_TEXT_OR_INT = (str, int)

ENGINE = Setting(
    "engine",
    _DATA,
    "URL",
    str,
    "Where the data is: sqlite:PATH, or memory: for data that is gone at the end.",
    default=default_engine_url,
    default_shown="sqlite: in your state directory",
)
QUOTA = Setting(
    "quota",
    _DATA,
    "SIZE",
    _size,
    "How much data to take before writes are refused.",
    default="2GiB",
    toml_types=_TEXT_OR_INT,
)
RETAIN_REVISIONS = Setting(
    "retain-revisions",
    _DATA,
    "N|off",
    _or_off(_count),
    "How many revisions of history to keep.",
    default="100000",
    toml_types=_TEXT_OR_INT,
)
RETAIN_AGE = Setting(
    "retain-age",
    _DATA,
    "TIME|off",
    _or_off(_duration_s),
    "How long to keep history.",
    default="1h",
)
LISTEN_ETCD = Setting(
    "listen-etcd",
    _LISTENING,
    "HOST:PORT|off",
    _or_off(Address.parse),
    "Where to speak etcd's v3 protocol, gRPC and JSON; 0.0.0.0:2379 is every network.",
    default="127.0.0.1:2379",
)
ADVERTISE_ETCD: Setting[Address | None] = Setting(
    "advertise-etcd",
    _LISTENING,
    "HOST:PORT",
    Address.parse,
    "Where clients that ask for the cluster's members are sent.",
    default=None,
    default_shown="where it listens; for every network, this host's name",
)
LISTEN_HTTP = Setting(
    "listen-http",
    _LISTENING,
    "HOST:PORT|off",
    _or_off(Address.parse),
    "Where to answer /health.",
    default="127.0.0.1:7070",
)
TLS_CERT = Setting(
    "tls-cert",
    _TLS,
    "FILE",
    _file,
    "The server's certificate (PEM), followed by those between it and the root.",
    default=None,
)
TLS_KEY = Setting(
    "tls-key",
    _TLS,
    "FILE",
    _file,
    "Its private key (PEM, no passphrase).",
    default=None,
)
TLS_CLIENT_CA = Setting(
    "tls-client-ca",
    _TLS,
    "FILE",
    _file,
    "Take only clients with a certificate that one of these authorities (PEM) signed.",
    default=None,
)
TLS_MIN = Setting(
    "tls-min",
    _TLS,
    "1.2|1.3",
    _tls_version,
    "The oldest TLS version to take.",
    default="1.2",
    toml_types=(str, float),
)
REQUEST_BYTES_MAX = Setting(
    "request-bytes-max",
    _LIMITS,
    "SIZE",
    _size,
    "How large one request may be.",
    default="1.5MiB",
    toml_types=_TEXT_OR_INT,
)
TXN_OPS_MAX = Setting(
    "txn-ops-max",
    _LIMITS,
    "N",
    _count,
    "How many operations one transaction may have.",
    default="128",
    toml_types=_TEXT_OR_INT,
)
CONNECTIONS_MAX = Setting(
    "connections-max",
    _LIMITS,
    "N",
    _count,
    "How many clients may be connected to the etcd port.",
    default="10000",
    toml_types=_TEXT_OR_INT,
)
STREAMS_MAX = Setting(
    "streams-max",
    _LIMITS,
    "N",
    _count,
    "How many calls one connection may have open.",
    default="4096",
    toml_types=_TEXT_OR_INT,
)
LOG_LEVEL = Setting(
    "log-level",
    _LOGS,
    "LEVEL",
    _log_level,
    "What to log, on stderr: debug, info, warning or error, and worse.",
    default="info",
)
LOG_FORMAT = Setting(
    "log-format",
    _LOGS,
    "text|json",
    _log_format,
    "For people, or one JSON object a line.",
    default="text",
)

SETTINGS: Final[tuple[Setting[Any], ...]] = (
    ENGINE,
    QUOTA,
    RETAIN_REVISIONS,
    RETAIN_AGE,
    LISTEN_ETCD,
    ADVERTISE_ETCD,
    LISTEN_HTTP,
    TLS_CERT,
    TLS_KEY,
    TLS_CLIENT_CA,
    TLS_MIN,
    REQUEST_BYTES_MAX,
    TXN_OPS_MAX,
    CONNECTIONS_MAX,
    STREAMS_MAX,
    LOG_LEVEL,
    LOG_FORMAT,
)


def in_group(group: str) -> list[Setting[Any]]:
    return [setting for setting in SETTINGS if setting.group == group]


def without_password(text: str) -> str:
    """A URL that may be shown: whoever reads logs and terminals does not need the password.

    >>> without_password("etcd://ada:secret@10.0.0.1:2379")
    'etcd://ada:***@10.0.0.1:2379'
    """
    scheme, separator, rest = text.partition("://")
    credentials, at, place = rest.rpartition("@")
    if not (separator and at and ":" in credentials):
        return text
    return f"{scheme}://{credentials.partition(':')[0]}:***@{place}"
