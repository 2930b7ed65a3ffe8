"""Settings of `quoracy serve` from outside: flags, environment, file, and what is shown of them."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from quoracy.compiled import compile_command, is_compiled
from quoracy.server.settings import GROUPS, SETTINGS
from tests.unit.cli.conftest import FREE_PORTS, LoggingServer, ServerProcess, assert_one_line

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "server.md"

Serve = Callable[..., ServerProcess]
Run = Callable[..., subprocess.CompletedProcess[str]]


def shown(quoracy: Run, *arguments: str | Path) -> dict[str, tuple[str, str]]:
    """What --show-config says: name -> text and source."""
    done = quoracy("serve", "--show-config", *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    rows = (re.split(r"\s{2,}", line) for line in done.stdout.splitlines())
    return {name: (text, source) for name, text, source in rows}


def test_flag_beats_environment_beats_file_beats_default(
    quoracy: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "quoracy.toml"
    file.write_text('quota = "1GiB"\nretain-age = "2h"\nlog_level = "error"\n')
    monkeypatch.setenv("QUORACY_QUOTA", "3GiB")
    monkeypatch.setenv("QUORACY_RETAIN_AGE", "3h")
    rows = shown(quoracy, "--config", file, "--quota", "4GiB")
    assert rows["quota"] == ("4GiB", "--quota")
    assert rows["retain-age"] == ("3h", "QUORACY_RETAIN_AGE")
    assert rows["log-level"] == ("error", f"{file}: log_level")
    assert rows["listen-etcd"] == ("127.0.0.1:2379", "default")
    assert list(rows) == [setting.name for setting in SETTINGS]


def test_file_can_be_named_in_the_environment(
    quoracy: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "quoracy.toml").write_text("txn-ops-max = 7")
    monkeypatch.setenv("QUORACY_CONFIG", str(tmp_path / "quoracy.toml"))
    assert shown(quoracy)["txn-ops-max"][0] == "7"


def test_server_follows_its_file(serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "quoracy.toml"
    file.write_text(f'engine = "sqlite:{tmp_path}/from-file.db"\nquota = "1GiB"\n')
    server = serve("--config", str(file))
    assert f"{tmp_path}/from-file.db\n" in server.greeting
    assert "of 1 GiB" in server.greeting


def test_show_config_starts_nothing(quoracy: Run, tmp_path: Path) -> None:
    shown(quoracy, "--engine", f"sqlite:{tmp_path}/q.db")
    assert list(tmp_path.iterdir()) == []


def test_mistake_in_the_file_is_one_line_and_exit_code_2(quoracy: Run, tmp_path: Path) -> None:
    file = tmp_path / "quoracy.toml"
    file.write_text('listen_htpp = "off"\n')
    done = quoracy("serve", "--config", file)
    assert done.returncode == 2
    told = assert_one_line(done.stderr)
    assert [part for part in (str(file), "listen_htpp", "listen-http") if part not in told] == []


def test_help_has_every_setting_in_its_group_with_its_default(quoracy: Run) -> None:
    helped = quoracy("serve", "--help").stdout
    parts = re.split("|".join(f"^{group}:" for group in GROUPS), helped, flags=re.MULTILINE)
    sections = dict(zip(GROUPS, parts[1:], strict=True))
    for setting in SETTINGS:
        if setting.secret:
            assert setting.flag not in helped
            continue
        options = re.split(r"\n  (?=-)", sections[setting.group])
        mine = [" ".join(each.split()) for each in options if each.startswith(f"{setting.flag} ")]
        assert len(mine) == 1
        assert f"[default: {setting.default_for_people}]" in mine[0]


def test_no_listener_at_all_is_allowed(serve: Serve, tmp_path: Path) -> None:
    off = ("--listen-http", "off", "--listen-etcd", "off")
    server = serve("--engine", f"sqlite:{tmp_path}/q.db", *off)
    for label in ("health", "etcd", "zookeeper"):
        assert re.search(rf"^  {label} +off$", server.greeting, re.MULTILINE)
    assert "etcdctl" not in server.greeting


def test_says_how_to_try_it(serve: Serve) -> None:
    server = serve("--engine", "memory:")
    host, port = server.etcd
    assert f"etcdctl --endpoints http://{host}:{port} put greeting hello\n" in server.greeting
    assert f"quoracy put greeting hello -e quoracy://{host}:{port}\n" in server.greeting


def test_etcd_port_in_use_is_one_line_and_touches_no_data(quoracy: Run, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = quoracy(
            "serve", "--engine", f"sqlite:{tmp_path}/q.db", *FREE_PORTS, "--listen-etcd", address
        )
    assert done.returncode == 1
    assert re.search(rf"{address}.*--listen-etcd", assert_one_line(done.stderr))
    assert list(tmp_path.iterdir()) == []


def test_port_that_everybody_can_reach_is_warned_of() -> None:
    with LoggingServer("--engine", "memory:", "--listen-etcd", "0.0.0.0:0") as server:
        warning = server.next_log()
        assert warning["level"] == "warning"
        assert "0.0.0.0:0" in warning["message"]
        assert server.next_log()["message"] == "ready"


def test_json_logs_say_what_is_otherwise_printed(tmp_path: Path) -> None:
    with LoggingServer("--engine", f"sqlite:{tmp_path}/q.db") as server:
        ready = server.next_log()
        assert ready["message"] == "ready"
        assert ready["data"] == f"{tmp_path}/q.db"
        assert ready["etcd"].startswith("127.0.0.1:")
        assert bool(ready["compiled"]) == is_compiled()
        assert (ready["compile_with"] or None) == compile_command()
        server.process.terminate()
        assert server.next_log()["message"] == "stopped by SIGTERM"
        assert server.process.stdout is not None
        assert server.process.stdout.read() == ""


@pytest.mark.skipif(sys.platform != "linux", reason="systemd is Linux's")
def test_service_manager_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(30)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        with LoggingServer("--engine", "memory:") as server:
            assert manager.recv(100) == b"READY=1"
            server.process.terminate()
            assert manager.recv(100) == b"STOPPING=1"


# -- what the guide shows


def test_guide_shows_the_greeting(serve: Serve, tmp_path: Path) -> None:
    server = serve("--engine", f"sqlite:{tmp_path}/quoracy.db", "--listen-zookeeper", "127.0.0.1:0")
    etcd, http = f":{server.etcd[1]}", server.url.removeprefix("http://127.0.0.1")
    greeting = server.greeting.replace(str(tmp_path), "/home/you/.local/state/quoracy")
    greeting = greeting.replace(f" -e quoracy://127.0.0.1{etcd}", "")  # not needed for port 2379
    greeting = re.sub(r"  speed .*\n", "", greeting)  # of a server that runs from source
    ports = {etcd: ":2379", http: ":7070", f":{server.zookeeper[1]}": ":2181"}
    for port, usual in ports.items():
        greeting = greeting.replace(port, usual)
    assert greeting in GUIDE.read_text(encoding="utf-8")


def test_guide_shows_effective_settings(quoracy: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/you")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("QUORACY_LOG_LEVEL", "debug")
    lines = quoracy("serve", "--quota", "1GiB", "--show-config").stdout.splitlines()
    guide = GUIDE.read_text(encoding="utf-8")
    assert "\n".join([*lines[:2], "...", *lines[-2:-1]]) in guide
