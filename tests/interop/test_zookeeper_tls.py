"""ZooKeeper's clients over TLS, with and without certificates of their own.

On Quoracy alone: Debian's ZooKeeper lacks parts of Netty that its own secure port needs.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError

from tests.interop.programs import WAIT_S_MAX, run, running_quoracy
from tests.interop.zookeeper_java import ZOOKEEPER_JARS, java_command
from tests.support.certificates import Authority, Pair
from tests.support.ports import free_port


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def port(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Of a server that wants to see a certificate of its clients."""
    port, pair = free_port(), authority.server()
    with running_quoracy(
        tmp_path_factory.mktemp("quoracy"),
        *("--listen-zookeeper", "off", "--listen-zookeeper-tls", f"127.0.0.1:{port}"),
        *("--tls-cert", str(pair.cert), "--tls-key", str(pair.key)),
        *("--tls-client-ca", str(authority.cert)),
    ):
        yield port


def _in_one(pair: Pair, file: Path) -> Path:
    """As Java wants it: the key and the certificate in one file."""
    file.write_bytes(pair.key.read_bytes() + pair.cert.read_bytes())
    return file


def test_kazoo_with_a_certificate(port: int, authority: Authority) -> None:
    pair = authority.client()
    client = KazooClient(
        f"127.0.0.1:{port}",
        timeout=30,
        use_ssl=True,
        ca=str(authority.cert),
        certfile=str(pair.cert),
        keyfile=str(pair.key),
    )
    client.start(WAIT_S_MAX)
    client.create("/tls", b"x" * 500_000)
    assert client.get("/tls")[0] == b"x" * 500_000
    with client.Lock("/tls-lock", "me"):
        assert client.Lock("/tls-lock").contenders() == ["me"]
    client.stop()
    client.close()


@pytest.mark.parametrize("certificate", ["none", "of others"])
def test_kazoo_without_the_right_certificate(
    port: int, authority: Authority, certificate: str, tmp_path: Path
) -> None:
    pair = Authority(tmp_path, "others").client() if certificate == "of others" else None
    client = KazooClient(
        f"127.0.0.1:{port}",
        timeout=2,
        use_ssl=True,
        ca=str(authority.cert),
        certfile=None if pair is None else str(pair.cert),
        keyfile=None if pair is None else str(pair.key),
    )
    with pytest.raises((KazooTimeoutError, ssl.SSLError)):
        client.start(1)


def test_the_java_client(port: int, authority: Authority, tmp_path: Path) -> None:
    both = _in_one(authority.client("java"), tmp_path / "client-both.pem")
    properties = tmp_path / "client.properties"
    properties.write_text(
        "zookeeper.client.secure=true\n"
        "zookeeper.clientCnxnSocket=org.apache.zookeeper.ClientCnxnSocketNetty\n"
        f"zookeeper.ssl.keyStore.location={both}\n"
        f"zookeeper.ssl.trustStore.location={authority.cert}\n"
    )
    command = java_command(
        "org.apache.zookeeper.ZooKeeperMain",
        *("-client-configuration", str(properties), "-server", f"127.0.0.1:{port}"),
        jars=(*ZOOKEEPER_JARS, "netty-codec.jar", "netty-resolver.jar"),
    )
    done = run(*command, stdin="create /java over-tls\nget /java\ndelete /java\nquit\n")
    assert (done.code, done.err) == (0, "Created /java\n"), done
    assert "over-tls" in done.out.splitlines(), done
