"""TLS as clients see it: who is let in, who is not, and certificates renewed under open connections."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.programs import Done, Etcdctl, QuoracyServer, running_quoracy, until
from tests.support.certificates import Authority, Pair


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def pair(ca: Authority) -> Pair:
    return ca.server()


@pytest.fixture(scope="module")
def server(
    ca: Authority, pair: Pair, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[QuoracyServer]:
    flags = ["--tls-cert", str(pair.cert), "--tls-key", str(pair.key), "--tls-client-ca", str(ca.cert)]
    with running_quoracy(tmp_path_factory.mktemp("tls"), *flags) as running:
        yield running


def with_tls(ca: Path, client: Pair | None) -> list[str]:
    flags = [
        "--insecure-transport=false",
        "--dial-timeout=1s",
        "--command-timeout=1s",
        f"--cacert={ca}",
    ]
    return flags if client is None else [*flags, f"--cert={client.cert}", f"--key={client.key}"]


def put(etcdctl: Etcdctl, server: QuoracyServer, ca: Path, client: Pair | None) -> Done:
    return etcdctl(server.port, *with_tls(ca, client), "put", "tls", "1")


def test_client_with_a_certificate_gets_in(
    etcdctl: Etcdctl, server: QuoracyServer, ca: Authority
) -> None:
    assert put(etcdctl, server, ca.cert, ca.client()) == Done(0, "OK\n", "")


def test_client_without_a_certificate_is_refused(
    etcdctl: Etcdctl, server: QuoracyServer, ca: Authority
) -> None:
    assert put(etcdctl, server, ca.cert, None).code == 1


def test_client_of_another_authority_is_refused(
    etcdctl: Etcdctl, server: QuoracyServer, ca: Authority, tmp_path: Path
) -> None:
    assert put(etcdctl, server, ca.cert, Authority(tmp_path).client()).code == 1


def test_expired_client_is_refused(etcdctl: Etcdctl, server: QuoracyServer, ca: Authority) -> None:
    assert put(etcdctl, server, ca.cert, ca.client("expired", expired=True)).code == 1


def test_server_of_another_authority_is_refused(
    etcdctl: Etcdctl, server: QuoracyServer, ca: Authority, tmp_path: Path
) -> None:
    assert put(etcdctl, server, Authority(tmp_path).cert, ca.client()).code == 1


def test_client_that_does_not_speak_tls_is_refused(etcdctl: Etcdctl, server: QuoracyServer) -> None:
    done = etcdctl(server.port, "--dial-timeout=1s", "--command-timeout=1s", "put", "tls", "1")
    assert done.code == 1


def test_garbage_instead_of_tls_harms_nobody(
    etcdctl: Etcdctl, server: QuoracyServer, ca: Authority
) -> None:
    for data in (b"\x16\x03\x01\xff\xff" + bytes(70_000), b"GET / HTTP/1.1\r\n\r\n", bytes(range(256))):
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as client:
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)
            while client.recv(4096):
                continue
    assert put(etcdctl, server, ca.cert, ca.client()).code == 0


def shown_by(server: QuoracyServer) -> str:
    return ssl.get_server_certificate(("127.0.0.1", server.port), timeout=30)


def test_renewed_certificate_is_shown_while_old_connections_go_on(
    etcdctl: Etcdctl, server: QuoracyServer, ca: Authority, pair: Pair
) -> None:
    before = shown_by(server)
    flags = with_tls(ca.cert, ca.client())
    etcdctl.ok(server.port, *flags, "put", "renewed", "1")
    with etcdctl.start(server.port, *flags, "watch", "--rev", "2", "renewed") as watch:
        watch.line_with("renewed")
        ca.server("renewed").copy_to(pair)
        server.hang_up()
        until(lambda: shown_by(server) != before, "the new certificate")
        etcdctl.ok(server.port, *flags, "put", "renewed", "over a new connection")
        assert watch.line_with("over") == "over a new connection"
