"""TLS: agreed on with those whose certificate is right, refused with the reason otherwise."""

from __future__ import annotations

import datetime
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from quoracy.engines.opening import open_embedded
from quoracy.errors import InvalidRequest, Unavailable
from quoracy.faces.etcd.services.member import Identity
from quoracy.faces.etcd.serving.server import serve_etcd
from quoracy.opening import open_store
from quoracy.remote.urls import TlsOptions
from tests.support.asking import contents


class _Authority:
    """Somebody who signs certificates, in a directory of their own."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
        self._name = name
        certificate = (
            self._builder(name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.path = str(directory / "ca.pem")
        Path(self.path).write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def issue(self, host: str) -> tuple[str, str]:
        """The files of a certificate for a host, and of its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
        certificate = (
            self._builder(name, key.public_key())
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        cert_path, key_path = self._directory / f"{host}.pem", self._directory / f"{host}.key"
        cert_path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        key_path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return str(cert_path), str(key_path)

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
        )


@pytest.fixture
def authority(tmp_path: Path) -> _Authority:
    return _Authority(tmp_path / "authority")


@pytest.fixture(params=[False, True], ids=["anyone", "known clients"])
async def port(authority: _Authority, request: pytest.FixtureRequest) -> AsyncIterator[int]:
    """A server with a certificate for `localhost`, which may want to see one as well."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*authority.issue("localhost"))
    context.set_alpn_protocols(["h2", "http/1.1"])
    if request.param:
        context.load_verify_locations(authority.path)
        context.verify_mode = ssl.CERT_REQUIRED
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        async with (
            open_embedded("memory:") as store,
            serve_etcd(store, listener, host="127.0.0.1", identity=Identity(1, 2), ssl=context),
        ):
            yield listener.getsockname()[1]


async def test_the_right_certificates_are_taken(port: int, authority: _Authority) -> None:
    cert, key = authority.issue("client")
    tls = TlsOptions(ca=authority.path, cert=cert, key=key)
    async with open_store(f"etcd://localhost:{port}", tls=tls) as store:
        await store.put(b"k", b"v")
        async with store.watch(b"k", after=1) as stream:
            assert (await anext(stream)).revision == 2


async def test_the_url_can_say_all_of_it(port: int, authority: _Authority) -> None:
    cert, key = authority.issue("client")
    query = f"ca={quote(authority.path)}&cert={quote(cert)}&key={quote(key)}&server_name=localhost"
    async with open_store(f"etcd://127.0.0.1:{port}?{query}") as store:
        await store.put(b"k", b"v")
        assert await contents(store) == {b"k": b"v"}


async def test_a_certificate_for_another_name_is_refused(port: int, authority: _Authority) -> None:
    tls = TlsOptions(ca=authority.path)
    async with open_store(f"etcd://127.0.0.1:{port}", tls=tls) as store:
        with pytest.raises(Unavailable, match=r"cannot be trusted: .*127\.0\.0\.1"):
            await store.put(b"k")


async def test_a_certificate_of_a_stranger_is_refused(port: int, tmp_path: Path) -> None:
    stranger = _Authority(tmp_path / "stranger")
    tls = TlsOptions(ca=stranger.path)
    async with open_store(f"etcd://localhost:{port}", tls=tls) as store:
        with pytest.raises(Unavailable, match="cannot be trusted"):
            await store.put(b"k")


async def test_the_systems_authorities_do_not_know_ours(port: int) -> None:
    async with open_store(f"etcd://localhost:{port}?tls=1") as store:
        with pytest.raises(Unavailable, match="cannot be trusted"):
            await store.put(b"k")


async def test_a_server_without_tls_is_no_server_with_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as plain:
        url = f"etcd://127.0.0.1:{plain.getsockname()[1]}?tls=1"
        async with open_store(url, timeout_s=0.3) as store:
            with pytest.raises(Unavailable):
                await store.put(b"k")


async def test_speaking_plainly_to_tls_fails_in_time(port: int) -> None:
    async with open_store(f"etcd://127.0.0.1:{port}", timeout_s=5) as store:
        with pytest.raises(Unavailable):
            await store.put(b"k")


@pytest.mark.parametrize("option", ["ca", "cert"])
async def test_files_that_cannot_be_used_are_named(
    tmp_path: Path, authority: _Authority, option: str
) -> None:
    bad = tmp_path / "bad.pem"
    for text in (None, "no certificate"):
        if text is not None:
            bad.write_text(text)
        _, key = authority.issue("client")
        tls = TlsOptions(ca=str(bad)) if option == "ca" else TlsOptions(cert=str(bad), key=key)
        with pytest.raises(InvalidRequest, match=r"bad\.pem"):
            async with open_store("etcd://localhost", tls=tls):
                pass
