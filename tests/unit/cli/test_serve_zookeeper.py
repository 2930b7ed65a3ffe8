"""`quoracy serve` and its ZooKeeper port: where it is, who is told, and that its settings arrive."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import signal
import socket
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import make_digest_acl

from quoracy.compiled import is_compiled
from tests.support.certificates import Authority, Pair
from tests.unit.cli.conftest import FREE_PORTS, LoggingServer, ServerProcess, assert_one_line

Serve = Callable[..., ServerProcess]
Run = Callable[..., subprocess.CompletedProcess[str]]

ANYWHERE = ("--engine", "memory:", "--listen-zookeeper", "127.0.0.1:0")


def word(address: tuple[str, int], said: bytes, context: ssl.SSLContext | None = None) -> str:
    """The answer to a four-letter word."""
    with socket.create_connection(address, timeout=30) as plain:
        connection = (
            plain if context is None else context.wrap_socket(plain, server_hostname=address[0])
        )
        with connection:
            connection.sendall(said)
            answer = bytearray()
            while part := connection.recv(65536):
                answer += part
    return answer.decode()


@contextmanager
def client(server: ServerProcess) -> Iterator[KazooClient]:
    host, port = server.zookeeper
    kazoo = KazooClient(f"{host}:{port}")
    kazoo.start(timeout=30)
    try:
        yield kazoo
    finally:
        kazoo.stop()
        kazoo.close()


def test_says_where_it_is_and_serves_there(serve: Serve) -> None:
    server = serve(*ANYWHERE)
    host, port = server.zookeeper
    assert f"  zookeeper  {host}:{port}, not encrypted\n" in server.greeting
    assert word(server.zookeeper, b"srvr").startswith("Zookeeper version: 3.")
    with client(server) as kazoo:
        kazoo.create("/jobs/7", b"waiting", makepath=True)
        assert kazoo.get("/jobs/7")[0] == b"waiting"


@pytest.mark.skipif(not is_compiled() or sys.platform != "linux", reason="nothing is given back")
def test_what_only_starting_needed_is_given_back_and_both_faces_serve(
    serve: Serve, quoracy: Run, tmp_path: Path
) -> None:
    server = serve("--engine", f"sqlite:{tmp_path}/q.db", "--listen-zookeeper", "127.0.0.1:0")
    assert server.get("/health").status == 200  # it was told to be ready just before
    kept_kb, most_kb = memory_kb(server, "VmRSS"), memory_kb(server, "VmHWM")
    assert kept_kb < most_kb - 1_024, "a megabyte is not given back by chance"
    endpoint = "quoracy://{}:{}".format(*server.etcd)
    assert quoracy("put", "greeting", "hello", "-e", endpoint).returncode == 0
    assert quoracy("get", "greeting", "-e", endpoint).stdout == "hello\n"
    with client(server) as kazoo:
        kazoo.create("/jobs", b"waiting", ephemeral=True)
        assert kazoo.get("/jobs")[0] == b"waiting"
    assert server.end(signal.SIGTERM)[0] == 0


def memory_kb(server: ServerProcess, what: str) -> int:
    status = Path(f"/proc/{server.pid}/status").read_text(encoding="ascii")
    found = re.search(rf"^{what}:\s+(\d+) kB$", status, re.MULTILINE)
    assert found is not None
    return int(found[1])


def test_data_and_sessions_outlive_a_restart(serve: Serve, tmp_path: Path) -> None:
    where = ("--engine", f"sqlite:{tmp_path}/q.db", "--listen-zookeeper", "127.0.0.1:0")
    first = serve(*where)
    with client(first) as kazoo:
        kazoo.create("/kept", b"1")
        kazoo.create("/passing", b"2", ephemeral=True)
        session = kazoo.client_id
        assert first.end(signal.SIGKILL)[0] == -signal.SIGKILL
        second = serve(*where[:-1], f"127.0.0.1:{first.zookeeper[1]}")
        assert kazoo.retry(kazoo.get, "/kept")[0] == b"1"
        assert kazoo.retry(kazoo.exists, "/passing") is not None
        assert kazoo.client_id == session
    assert second.end(signal.SIGTERM)[0] == 0


def test_signal_ends_it_while_a_client_stays_connected(serve: Serve) -> None:
    server = serve(*ANYWHERE)
    with client(server) as kazoo:
        kazoo.exists("/", watch=print)
        code, out, err = server.end(signal.SIGTERM)
    assert code == 0
    assert "error" not in err
    assert "Traceback" not in err
    assert out == "Stopped by SIGTERM; the store is closed.\n"


@pytest.mark.parametrize("flag", ["--listen-zookeeper", "--listen-zookeeper-admin"])
def test_port_in_use_is_one_line_that_names_the_flag(quoracy: Run, tmp_path: Path, flag: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        free = ("--engine", f"sqlite:{tmp_path}/q.db", *FREE_PORTS, "--listen-zookeeper", "127.0.0.1:0")
        done = quoracy("serve", *free, flag, address)
    assert done.returncode == 1
    assert re.search(rf"{address}.*{flag}\.", assert_one_line(done.stderr))
    assert list(tmp_path.iterdir()) == []


def test_ports_that_everybody_can_reach_are_warned_of(tmp_path: Path) -> None:
    pair = Authority(tmp_path).server()
    everywhere = {
        "--listen-zookeeper": "not encrypted|encrypted.*listen-zookeeper-tls",
        "--listen-zookeeper-tls": "tls-client-ca",
        "--listen-zookeeper-admin": "who is connected",
    }
    flags = [part for flag in everywhere for part in (flag, "0.0.0.0:0")]
    files = ("--tls-cert", str(pair.cert), "--tls-key", str(pair.key))
    with LoggingServer("--engine", "memory:", *files, *flags) as server:
        for told in everywhere.values():
            warning = server.next_log()
            assert warning["level"] == "warning"
            assert re.search(rf"0\.0\.0\.0:0.*({told})", warning["message"])
        ready = server.next_log()
        assert ready["message"] == "ready"
        assert [ready[name].rpartition(":")[0] for name in ("zookeeper", "zookeeper_tls")] == [
            "0.0.0.0",
            "0.0.0.0",
        ]


def test_admin_commands_are_on_a_port_of_their_own(serve: Serve) -> None:
    server = serve(*ANYWHERE, "--listen-zookeeper-admin", "127.0.0.1:0")
    found = re.search(r"^ +(http://127\.0\.0\.1:\d+/commands)$", server.greeting, re.MULTILINE)
    assert found, server.greeting
    with urllib.request.urlopen(f"{found[1]}/configuration", timeout=30) as answer:
        shown = json.load(answer)
    assert (shown["client_port"], shown["error"]) == (server.zookeeper[1], None)
    assert server.end(signal.SIGTERM)[0] == 0


# -- settings


def test_settings_arrive(serve: Serve) -> None:
    server = serve(
        *ANYWHERE,
        *("--zookeeper-tick-time", "500ms"),
        *("--zookeeper-max-session-timeout", "20s"),
        *("--zookeeper-max-client-cnxns", "7"),
        *("--zookeeper-4lw-commands-whitelist", "conf,ruok"),
    )
    conf = dict(line.split("=", 1) for line in word(server.zookeeper, b"conf").splitlines())
    assert (conf["tickTime"], conf["minSessionTimeout"]) == ("500", "1000")
    assert (conf["maxSessionTimeout"], conf["maxClientCnxns"]) == ("20000", "7")
    assert word(server.zookeeper, b"ruok") == "imok"
    assert word(server.zookeeper, b"mntr").endswith("is not in the whitelist.\n")


@pytest.mark.parametrize("source", ["environment", "file"])
def test_super_user_is_named_in_secret(
    serve: Serve, quoracy: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    sha1 = hashlib.sha1(b"super:secret", usedforsecurity=False).digest()
    digest = base64.b64encode(sha1).decode()
    file = tmp_path / "quoracy.toml"
    if source == "file":
        file.write_text(f'zookeeper-super-digest = "super:{digest}"\n')
    else:
        file.write_text("")
        monkeypatch.setenv("QUORACY_ZOOKEEPER_SUPER_DIGEST", f"super:{digest}")
    server = serve("--config", str(file), *ANYWHERE)
    with client(server) as kazoo:
        kazoo.create("/vault", b"gold", acl=[make_digest_acl("ada", "lovelace", all=True)])
        with pytest.raises(NoAuthError):
            kazoo.get("/vault")
        kazoo.add_auth("digest", "super:secret")
        assert kazoo.get("/vault")[0] == b"gold"
    shown = quoracy("serve", "--show-config", "--config", file)
    assert shown.returncode == 0
    assert digest not in shown.stdout + shown.stderr + server.greeting
    assert re.search(r"^zookeeper-super-digest +\*\*\* ", shown.stdout, re.MULTILINE)


def test_there_is_no_option_for_a_secret(quoracy: Run) -> None:
    done = quoracy("serve", "--zookeeper-super-digest", "super:x", "--show-config")
    assert done.returncode == 2
    assert "--zookeeper-super-digest" in done.stderr


# -- TLS


def tls_flags(pair: Pair, client_ca: Path | None = None) -> list[str]:
    given = ["--engine", "memory:", "--tls-cert", str(pair.cert), "--tls-key", str(pair.key)]
    given += ["--listen-etcd", "off", "--listen-zookeeper-tls", "127.0.0.1:0"]
    return given if client_ca is None else [*given, "--tls-client-ca", str(client_ca)]


def trusting(ca: Path, pair: Pair | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=ca)
    if pair is not None:
        context.load_cert_chain(pair.cert, pair.key)
    return context


def test_encrypted_port_needs_no_other(serve: Serve, tmp_path: Path) -> None:
    ca = Authority(tmp_path)
    server = serve(*tls_flags(ca.server()))
    host, port = server.zookeeper
    assert f"  zookeeper  {host}:{port}, TLS\n" in server.greeting
    assert "Mode: standalone" in word((host, port), b"srvr", trusting(ca.cert))
    kazoo = KazooClient(f"{host}:{port}", use_ssl=True, ca=str(ca.cert))
    kazoo.start(timeout=30)
    try:
        kazoo.create("/jobs", b"")
        assert sorted(kazoo.get_children("/")) == ["jobs", "zookeeper"]
    finally:
        kazoo.stop()
        kazoo.close()
    assert server.end(signal.SIGTERM)[0] == 0


def test_client_without_a_certificate_gets_nowhere(serve: Serve, tmp_path: Path) -> None:
    ca = Authority(tmp_path)
    server = serve(*tls_flags(ca.server(), ca.cert))
    assert "TLS with client certificates\n" in server.greeting
    assert word(server.zookeeper, b"srvr", trusting(ca.cert, ca.client()))
    # With TLS 1.3 a client finds out only when it reads: an error, or nothing at all.
    with suppress(ssl.SSLError, ConnectionError):
        assert word(server.zookeeper, b"srvr", trusting(ca.cert)) == ""
    assert server.end(signal.SIGTERM)[0] == 0


def test_plain_port_stays_beside_the_encrypted_one(serve: Serve, tmp_path: Path) -> None:
    server = serve(*tls_flags(Authority(tmp_path).server()), "--listen-zookeeper", "127.0.0.1:0")
    found = re.search(
        r"zookeeper  \S+:(\d+), not encrypted\n +127\.0\.0\.1:(\d+), TLS\n", server.greeting
    )
    assert found, server.greeting
    assert word(("127.0.0.1", int(found[1])), b"srvr").startswith("Zookeeper version")
