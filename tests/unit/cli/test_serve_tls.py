"""`quoracy serve` with TLS, from outside: who gets in, renewal by signal, and the guide's commands."""

from __future__ import annotations

import json
import re
import shutil
import signal
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.certificates import Authority, Pair, replace
from tests.unit.cli.conftest import LoggingServer, ServerProcess

Serve = Callable[..., ServerProcess]

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "server.md"
ETCDCTL = shutil.which("etcdctl", path="/usr/bin") or shutil.which("etcdctl")
needs_sighup = pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGHUP")


@pytest.fixture
def ca(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def flags(pair: Pair, client_ca: Path | None = None) -> list[str]:
    given = ["--engine", "memory:", "--tls-cert", str(pair.cert), "--tls-key", str(pair.key)]
    return given if client_ca is None else [*given, "--tls-client-ca", str(client_ca)]


def trusting(ca: Path, pair: Pair | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=ca)
    if pair is not None:
        context.load_cert_chain(pair.cert, pair.key)
    return context


def version(server: ServerProcess, context: ssl.SSLContext) -> str:
    """What the etcd port answers over TLS and HTTP/1.1."""
    host, port = server.etcd
    with urllib.request.urlopen(
        f"https://{host}:{port}/version", context=context, timeout=30
    ) as answer:
        found = json.load(answer)["etcdserver"]
        assert isinstance(found, str)
        return found


def test_etcd_port_is_encrypted(serve: Serve, ca: Authority) -> None:
    server = serve(*flags(ca.server()))
    assert ", TLS\n" in server.greeting
    assert re.search(r"etcdctl --endpoints https://\S+ --cacert CA put", server.greeting)
    assert version(server, trusting(ca.cert)).startswith("3.")


def test_client_without_a_certificate_gets_nowhere(serve: Serve, ca: Authority) -> None:
    server = serve(*flags(ca.server(), ca.cert))
    assert "client certificates" in server.greeting
    assert version(server, trusting(ca.cert, ca.client())).startswith("3.")
    with pytest.raises((urllib.error.URLError, ssl.SSLError, ConnectionError)):
        version(server, trusting(ca.cert))
    assert server.end(signal.SIGTERM)[0] == 0


@needs_sighup
def test_hangup_reads_certificates_and_log_level_again(ca: Authority, tmp_path: Path) -> None:
    server_pair, file = ca.server(), tmp_path / "quoracy.toml"
    file.write_text('log-level = "info"\n')
    with LoggingServer("--config", str(file), *flags(server_pair)) as server:
        host, _, port = server.next_log()["etcd"].rpartition(":")
        before = shown_by(host, int(port))

        replace(server_pair.cert, b"broken")
        server.process.send_signal(signal.SIGHUP)
        assert "log level is info" in server.next_log()["message"]
        error = server.next_log()
        assert (error["level"], str(server_pair.cert) in error["message"]) == ("error", True)
        assert shown_by(host, int(port)) == before

        ca.server("renewed").copy_to(server_pair)
        file.write_text('log-level = "debug"\nquota = "1GiB"\n')
        server.process.send_signal(signal.SIGHUP)
        messages = [server.next_log()["message"] for _ in range(3)]
        assert "log level is debug" in messages[0]
        assert "quota" in messages[1]
        assert "certificates read" in messages[2]
        assert shown_by(host, int(port)) != before


def shown_by(host: str, port: int) -> str:
    return ssl.get_server_certificate((host, port), timeout=30)


@needs_sighup
def test_hangup_with_a_broken_file_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "quoracy.toml"
    file.write_text("")
    with LoggingServer("--engine", "memory:", "--config", str(file)) as server:
        assert server.next_log()["message"] == "ready"
        file.write_text("log-level = ")
        server.process.send_signal(signal.SIGHUP)
        assert str(file) in server.next_log()["message"]
        server.process.terminate()
        assert server.next_log()["message"] == "stopped by SIGTERM"


@pytest.mark.skipif(shutil.which("openssl") is None, reason="the guide's commands are openssl's")
def test_commands_of_the_guide_make_certificates_that_work(serve: Serve, tmp_path: Path) -> None:
    script = re.search(r"```sh\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    assert script is not None
    subprocess.run(["sh", "-e", "-c", script[1]], check=True, cwd=tmp_path, capture_output=True)
    made = {
        name: Pair(tmp_path / f"{name}.pem", tmp_path / f"{name}.key") for name in ("server", "client")
    }
    server = serve(*flags(made["server"], tmp_path / "ca.pem"))
    context = trusting(tmp_path / "ca.pem", made["client"])
    context.verify_flags |= ssl.VERIFY_X509_STRICT  # Python's own default from 3.13 on
    assert version(server, context).startswith("3.")
    assert server.end(signal.SIGTERM) == (0, "Stopped by SIGTERM; the store is closed.\n", "")


@pytest.mark.skipif(ETCDCTL is None, reason="etcdctl is not installed")
def test_etcdctl_gets_in_with_a_certificate(serve: Serve, ca: Authority) -> None:
    server = serve(*flags(ca.server(), ca.cert))
    host, port = server.etcd
    client = ca.client()
    assert ETCDCTL is not None
    done = subprocess.run(
        [ETCDCTL, "--endpoints", f"https://{host}:{port}", "--cacert", ca.cert, "--cert", client.cert,
         "--key", client.key, "put", "greeting", "hello"],
        check=False, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "OK\n"), done.stderr
