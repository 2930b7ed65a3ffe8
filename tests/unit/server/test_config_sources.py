"""Settings: one table, three sources, and errors that say where to look."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from quoracy.engines.embedded.retention import Retention
from quoracy.errors import InvalidRequest
from quoracy.faces.zookeeper.settings import ZooKeeperSettings
from quoracy.server import settings
from quoracy.server.cell.config import CellConfig, CellMember, CellTls
from quoracy.server.config import Address, LogConfig, ServerConfig, TlsConfig
from quoracy.server.settings import GROUPS, SETTINGS, Setting, in_group, without_password
from quoracy.server.sources import Effective, gather
from quoracy.store.rules import Limits
from tests.support.settings_table import EXAMPLE, GUIDE, REWRITE, in_guide, make_example, make_table

NAMES = [setting.name for setting in SETTINGS]
CELL_SETTINGS = in_group(settings.CELL.group)
# Something else than the default, and valid, for every setting.
OTHERS = {
    "engine": "memory:",
    "quota": "1GiB",
    "retain-revisions": "off",
    "retain-age": "2h",
    "cell": "a=10.0.0.1,b=10.0.0.2:7:8",
    "node": "b",
    "data-dir": "/somewhere",
    "cell-name": "other",
    "cell-cert": "/c.pem",
    "cell-key": "/c.key",
    "cell-ca": "/c-ca.pem",
    "etcd-program": "/opt/etcd",
    "etcd-flags": "--snapshot-count=1000 --heartbeat-interval=200",
    "listen-etcd": "0.0.0.0:1",
    "advertise-etcd": "db.example:2379",
    "listen-http": "off",
    "listen-zookeeper": "0.0.0.0:2",
    "listen-zookeeper-tls": "0.0.0.0:3",
    "listen-zookeeper-admin": "127.0.0.1:4",
    "tls-cert": "cert.pem",
    "tls-key": "key.pem",
    "tls-client-ca": "ca.pem",
    "tls-min": "1.3",
    "request-bytes-max": "4MiB",
    "txn-ops-max": "1_000",
    "connections-max": "5",
    "streams-max": "6",
    "zookeeper-tick-time": "500ms",
    "zookeeper-min-session-timeout": "700",
    "zookeeper-max-session-timeout": "1m",
    "zookeeper-max-client-cnxns": "0",
    "zookeeper-max-cnxns": "7",
    "zookeeper-jute-maxbuffer": "4MiB",
    "zookeeper-global-outstanding-limit": "8",
    "zookeeper-4lw-commands-whitelist": "ruok, mntr",
    "zookeeper-container-check-interval": "9",
    "zookeeper-container-max-per-minute": "10",
    "zookeeper-container-max-never-used-interval": "11",
    "zookeeper-extended-types-enabled": "no",
    "zookeeper-skip-acl": "yes",
    "zookeeper-super-digest": "super:bxqYOc7YdaxbzglurU1QRqzc7Aw=",
    "log-level": "debug",
    "log-format": "json",
}


def toml(tmp_path: Path, content: str) -> Path:
    file = tmp_path / "quoracy.toml"
    file.write_text(content)
    return file


def read(
    flags: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
    file: Path | None = None,
) -> Effective:
    return gather(flags or {}, environ or {}, file=file)


def refusal(
    flags: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
    file: Path | None = None,
) -> str:
    with pytest.raises(InvalidRequest) as caught:
        read(flags, environ, file).config()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_defaults_are_those_of_the_values_themselves() -> None:
    """A program that makes a ServerConfig gets the server that the command line gives."""
    config = read().config()
    assert config == ServerConfig(
        engine_url=config.engine_url,
        listen_etcd=Address("127.0.0.1", 2379),
        listen_http=Address("127.0.0.1", 7070),
        listen_zookeeper=Address("127.0.0.1", 2181),
    )


@pytest.mark.parametrize("setting", SETTINGS, ids=NAMES)
def test_every_setting_has_three_sources_and_the_order_of_them(
    setting: Setting[Any], tmp_path: Path
) -> None:
    text = OTHERS[setting.name]
    file = toml(tmp_path, f'{setting.name} = "{text}"')
    flag, variable = {setting.name: text}, {setting.variable: text}
    default = {setting.variable: setting.default_text or text}
    for source, effective in {
        setting.flag: read(flag, default, file),
        setting.variable: read({}, variable, file),
        f"{file}: {setting.name}": read({}, {}, file),
    }.items():
        assert effective.get(setting) == setting.parse(text)
        assert effective.source(setting) == source
        shown = "***" if setting.secret else text
        assert (setting.name, shown, source) in effective.rows()
    assert read().source(setting) == "default"


def test_every_setting_of_a_cell_reaches_the_configuration() -> None:
    cell = {setting.name: OTHERS[setting.name] for setting in CELL_SETTINGS}
    assert read(cell).config().cell == CellConfig(
        name="other",
        members=(CellMember("a", "10.0.0.1"), CellMember("b", "10.0.0.2", 7, 8)),
        node="b",
        data_dir=Path("/somewhere"),
        program=Path("/opt/etcd"),
        tls=CellTls(Path("/c.pem"), Path("/c.key"), Path("/c-ca.pem")),
        flags=("--snapshot-count=1000", "--heartbeat-interval=200"),
    )


@pytest.mark.parametrize("setting", CELL_SETTINGS[1:], ids=lambda setting: setting.name)
def test_setting_of_a_cell_without_a_cell_is_refused(setting: Setting[Any]) -> None:
    assert refusal({setting.name: OTHERS[setting.name]}) == f"{setting.flag} needs cell as well."


def test_every_setting_reaches_the_configuration() -> None:
    """Those of a cell, which say where the data is in another way, apart."""
    cell = {setting.name for setting in CELL_SETTINGS}
    others = {name: text for name, text in OTHERS.items() if name not in cell}
    assert read(others).config() == ServerConfig(
        engine_url="memory:",
        listen_etcd=Address("0.0.0.0", 1),
        listen_http=None,
        listen_zookeeper=Address("0.0.0.0", 2),
        listen_zookeeper_tls=Address("0.0.0.0", 3),
        listen_zookeeper_admin=Address("127.0.0.1", 4),
        advertise_etcd=Address("db.example", 2379),
        tls=TlsConfig(Path("cert.pem"), Path("key.pem"), Path("ca.pem"), "1.3"),
        limits=Limits(storage_bytes_max=1024**3, request_bytes_max=4 * 1024**2, txn_ops_max=1_000),
        retention=Retention(revisions_max=None, age_max_s=7_200),
        connections_max=5,
        streams_max=6,
        zookeeper=ZooKeeperSettings(
            tick_time=500,
            min_session_timeout=700,
            max_session_timeout=60_000,
            max_client_cnxns=0,
            max_cnxns=7,
            jute_maxbuffer=4 * 1024**2,
            global_outstanding_limit=8,
            commands_whitelist=frozenset({"ruok", "mntr"}),
            container_check_interval=9,
            container_max_per_minute=10,
            container_max_never_used=11,
            extended_types_enabled=False,
            super_digest="super:bxqYOc7YdaxbzglurU1QRqzc7Aw=",
            skip_acl=True,
        ),
        log=LogConfig("debug", "json"),
    )


def test_names_of_a_setting_follow_from_each_other() -> None:
    setting = settings.LISTEN_ETCD
    assert (setting.flag, setting.variable, setting.key) == (
        "--listen-etcd",
        "QUORACY_LISTEN_ETCD",
        "listen_etcd",
    )


def test_every_group_has_settings_and_every_setting_a_group() -> None:
    assert {setting.group for setting in SETTINGS} == set(GROUPS)
    assert len(set(NAMES)) == len(NAMES)


def test_file_takes_dashes_or_underscores_and_toml_types(tmp_path: Path) -> None:
    written = 'listen_etcd = "off"', "txn-ops-max = 256", "quota = 1000", "tls-min = 1.3"
    file = toml(tmp_path, "\n".join((*written, 'retain-revisions = "off"')))
    config = read(file=file).config()
    assert config.listen_etcd is None
    assert (config.limits.txn_ops_max, config.limits.storage_bytes_max) == (256, 1000)
    assert config.retention.revisions_max is None
    assert read(file=file).get(settings.TLS_MIN) == "1.3"


def test_variable_that_is_empty_is_not_set() -> None:
    assert read({}, {"QUORACY_LISTEN_ETCD": ""}).source(settings.LISTEN_ETCD) == "default"


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ('listen-ectd = "off"', ["'listen-ectd'", "listen-etcd"]),
        ('[tls]\ncert = "x"', ["'tls'", "tls-"]),
        ("zzzzzz = 1", ["'zzzzzz'", "--help"]),
        ("listen-etcd = 2379", ["listen-etcd", "a string", "127.0.0.1:2379", "2379"]),
        ("txn-ops-max = true", ["txn-ops-max", "an integer", "True"]),
        ('txn-ops-max = ["128"]', ["txn-ops-max"]),
        ("txn-ops-max = -1", ["txn-ops-max", "-1"]),
        ('listen_etcd = "off"\nlisten-etcd = "off"', ["listen-etcd", "twice"]),
        ('log-level = "loud"', ["log-level", "debug, info, warning, error"]),
        ('log-level = ""', ["log-level", "empty"]),
        ("\nlog-level = info", ["not TOML", "line 2"]),
        ("a = 1\na = 2", ["not TOML"]),
    ],
)
def test_mistake_in_the_file_is_one_line_with_file_key_and_remedy(
    tmp_path: Path, content: str, told: list[str]
) -> None:
    file = toml(tmp_path, content)
    message = refusal(file=file)
    assert [part for part in (str(file), *told) if part not in message] == []


@pytest.mark.parametrize("fault", ["missing", "a directory", "not text"])
def test_file_that_cannot_be_read_is_one_line(tmp_path: Path, fault: str) -> None:
    file = tmp_path / "quoracy.toml"
    if fault == "a directory":
        file.mkdir()
    elif fault == "not text":
        file.write_bytes(b"\xff\xfe")
    assert str(file) in refusal(file=file)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("quota", "0"),
        ("retain-age", "0s"),
        ("retain-revisions", "0"),
        ("connections-max", "off"),
        ("tls-min", "1.1"),
        ("log-format", "xml"),
        ("listen-etcd", "2379"),
        ("zookeeper-tick-time", "0"),
        ("zookeeper-tick-time", "1_000_000_000_000"),
        ("zookeeper-max-session-timeout", "2000000000"),
        ("zookeeper-max-cnxns", "-1"),
        ("zookeeper-jute-maxbuffer", "2GiB"),
        ("zookeeper-skip-acl", "maybe"),
        ("zookeeper-4lw-commands-whitelist", "mntrs"),
    ],
)
def test_value_that_cannot_be_meant_names_its_source(name: str, text: str) -> None:
    assert f"--{name}: {text!r}" in refusal({name: text})
    variable = f"QUORACY_{name.replace('-', '_').upper()}"
    assert f"{variable}: {text!r}" in refusal({}, {variable: text})


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ({"tls-cert": "c"}, ["--tls-cert", "tls-key"]),
        ({"tls-key": "k"}, ["--tls-key", "tls-cert"]),
        ({"tls-client-ca": "a"}, ["--tls-client-ca", "tls-cert"]),
        (
            {"listen-etcd": "127.0.0.1:7000", "listen-http": "127.0.0.1:7000"},
            ["--listen-etcd", "--listen-http", "127.0.0.1:7000"],
        ),
        ({"listen-etcd": "127.0.0.1:2181"}, ["--listen-etcd", "listen-zookeeper", "127.0.0.1:2181"]),
        ({"listen-zookeeper-tls": "127.0.0.1:1"}, ["--listen-zookeeper-tls", "tls-cert"]),
        (
            {"listen-zookeeper-admin": "127.0.0.1:1", "listen-zookeeper": "off"},
            ["--listen-zookeeper-admin", "listen-zookeeper"],
        ),
        (
            {"zookeeper-min-session-timeout": "50s"},
            ["50000 ms", "40000 ms", "zookeeper-min-session-timeout", "zookeeper-max-session-timeout"],
        ),
    ],
)
def test_settings_that_make_no_sense_together_are_refused(
    flags: dict[str, str], told: list[str]
) -> None:
    message = refusal(flags)
    assert [part for part in told if part not in message] == []


def test_two_free_ports_are_two_ports() -> None:
    read({"listen-etcd": "127.0.0.1:0", "listen-http": "127.0.0.1:0"}).config()


def test_passwords_are_not_shown() -> None:
    rows = read({"engine": "etcd://ada:secret@10.0.0.1:2379"}).rows()
    assert not any("secret" in text for _, text, _ in rows)
    assert without_password("sqlite:/data/a@b:c.db") == "sqlite:/data/a@b:c.db"


@pytest.mark.parametrize("wrong", ["super:secret", "superbxqYOc7YdaxbzglurU1QRqzc7Aw="])
def test_digest_that_is_none_is_not_repeated(wrong: str, tmp_path: Path) -> None:
    message = refusal({}, {"QUORACY_ZOOKEEPER_SUPER_DIGEST": wrong})
    assert message.startswith("QUORACY_ZOOKEEPER_SUPER_DIGEST: ")
    assert wrong not in message
    number = refusal(file=toml(tmp_path, "zookeeper-super-digest = 424242"))
    assert "424242" not in number


def test_yes_and_no_may_be_toml_booleans(tmp_path: Path) -> None:
    file = toml(tmp_path, "zookeeper-skip-acl = true\nzookeeper-extended-types-enabled = false")
    zookeeper = read(file=file).config().zookeeper
    assert (zookeeper.skip_acl, zookeeper.extended_types_enabled) == (True, False)


def test_differences_are_named() -> None:
    before, after = read(), read({"log-level": "debug", "quota": "1GiB"})
    assert before.differences(after) == [settings.QUOTA, settings.LOG_LEVEL]


# -- what the guide says


def test_guide_has_the_table_of_settings() -> None:
    assert in_guide(GUIDE.read_text(encoding="utf-8")) == make_table(), f"run {REWRITE}"


def test_example_file_has_every_setting_and_is_toml() -> None:
    assert EXAMPLE.read_text(encoding="utf-8") == make_example(), f"run {REWRITE}"
    lines = [line.removeprefix("# ") for line in make_example().splitlines() if " = " in line]
    assert list(tomllib.loads("\n".join(lines))) == NAMES
