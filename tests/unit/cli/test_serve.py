"""`quoracy serve` from outside: what it prints, answers and refuses, and how it ends."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from quoracy.compiled import compile_command
from tests.unit.cli.conftest import FREE_PORTS, ServerProcess, assert_one_line

Serve = Callable[..., ServerProcess]
Run = Callable[..., subprocess.CompletedProcess[str]]


def test_says_where_its_data_is_and_answers_health(serve: Serve, tmp_path: Path) -> None:
    server = serve("--engine", f"sqlite:{tmp_path}/not/there/yet/q.db")
    assert f"  data       {tmp_path}/not/there/yet/q.db\n" in server.greeting
    assert "revision 1, 0 keys" in server.greeting
    assert (tmp_path / "not/there/yet/q.db").exists()
    answer = server.get("/health")
    assert (answer.status, answer.json["health"], answer.json["revision"]) == (200, "true", 1)


def test_from_source_it_says_how_to_compile_it(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    command = compile_command()
    speed = re.findall(r"^  speed +(.*)$", serve("--engine", "memory:").greeting, re.MULTILINE)
    assert speed == ([] if command is None else [f"runs from source; faster once compiled: {command}"])
    monkeypatch.setenv("QUORACY_PURE", "1")  # as somebody wanted it: there is nothing to say
    assert "speed" not in serve("--engine", "memory:").greeting


def test_default_data_is_in_the_state_directory(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    serve()
    assert len(list(tmp_path.rglob("quoracy.db"))) == 1


def test_unknown_path_gets_404_and_a_pointer(serve: Serve) -> None:
    answer = serve("--engine", "memory:").get("/nothing")
    assert answer.status == 404
    assert "/health" in answer.body


def test_page_of_another_origin_is_refused(serve: Serve) -> None:
    assert serve("--engine", "memory:").get("/health", Host="evil.example").status == 421


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_signal_ends_it_cleanly(serve: Serve, tmp_path: Path, number: signal.Signals) -> None:
    server = serve("--engine", f"sqlite:{tmp_path}/q.db")
    code, out, err = server.end(number)
    assert (code, err) == (0, "")
    assert out == f"Stopped by {number.name}; the store is closed.\n"


def test_signal_ends_it_while_a_client_stays_connected(serve: Serve) -> None:
    server = serve("--engine", "memory:")
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as client:
        client.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert client.recv(4096).startswith(b"HTTP/1.1 200")
        assert server.end(signal.SIGTERM)[0] == 0


def test_restarts_after_kill_9(serve: Serve, tmp_path: Path) -> None:
    first = serve("--engine", f"sqlite:{tmp_path}/q.db")
    assert first.end(signal.SIGKILL)[0] == -signal.SIGKILL
    assert serve("--engine", f"sqlite:{tmp_path}/q.db").get("/health").status == 200


def test_second_server_on_the_same_data_is_told_who_owns_it(
    serve: Serve, quoracy: Run, tmp_path: Path
) -> None:
    owner = serve("--engine", f"sqlite:{tmp_path}/q.db")
    second = quoracy("serve", "--engine", f"sqlite:{tmp_path}/q.db", *FREE_PORTS)
    assert second.returncode == 1
    assert f"process {owner.pid}" in assert_one_line(second.stderr)


def test_port_in_use_is_one_line_and_touches_no_data(quoracy: Run, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = quoracy(
            "serve", "--engine", f"sqlite:{tmp_path}/q.db", *FREE_PORTS, "--listen-http", address
        )
    assert done.returncode == 1
    assert re.search(rf"{address}.*--listen-http", assert_one_line(done.stderr))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["--no-such-flag"], "--no-such-flag"),
        (["--listen-http", "7070"], "HOST:PORT"),
        (["--listen-http", "127.0.0.1:99999"], "65535"),
        (["--engine", "postgres:x"], "sqlite:"),
        (["--quota", "much"], "2GiB"),
        (["--retain-age", "soon"], "1h30m"),
        (["--tls-cert", "server.pem"], "tls-key"),
        (["--tls-cert", "gone.pem", "--tls-key", "gone.key"], "gone.pem"),
        (["--log-level", "loud"], "debug"),
        (["--config", "gone.toml"], "gone.toml"),
        (["--retain-revisions", "-3"], "-3"),
        (["stray"], "stray"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_flag_is_one_line_and_exit_code_2(quoracy: Run, arguments: list[str], hint: str) -> None:
    done = quoracy("serve", *FREE_PORTS, *arguments)
    assert done.returncode == 2
    assert hint in assert_one_line(done.stderr)


def test_unwritable_data_directory_is_one_line(quoracy: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    done = quoracy("serve", "--engine", f"sqlite:{tmp_path}/file/q.db", *FREE_PORTS)
    assert done.returncode == 1
    assert str(tmp_path) in assert_one_line(done.stderr)


def test_data_that_is_no_store_is_one_line(quoracy: Run, tmp_path: Path) -> None:
    (tmp_path / "q.db").write_bytes(
        b"this is not a database, and long enough to be read as one\n" * 100
    )
    done = quoracy("serve", "--engine", f"sqlite:{tmp_path}/q.db", *FREE_PORTS)
    assert done.returncode == 1
    assert str(tmp_path / "q.db") in assert_one_line(done.stderr)


@pytest.mark.skipif(sys.platform != "linux", reason="the budget is measured where we deploy")
def test_idle_server_stays_below_80_mb(serve: Serve, tmp_path: Path) -> None:
    server = serve("--engine", f"sqlite:{tmp_path}/q.db")
    assert server.get("/health").status == 200
    assert psutil.Process(server.pid).memory_info().rss < 80e6
