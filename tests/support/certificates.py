"""Certificates for tests, made on the spot: an authority, and what it signs."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

__all__ = ["Authority", "Pair"]

_DAY = datetime.timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, as files."""

    cert: Path
    key: Path

    def copy_to(self, other: Pair) -> None:
        """Put this pair where another one is, as a renewal does: each file replaced in one step."""
        for mine, theirs in ((self.cert, other.cert), (self.key, other.key)):
            replace(theirs, mine.read_bytes())


def replace(file: Path, content: bytes) -> None:
    draft = file.with_suffix(".new")
    draft.write_bytes(content)
    draft.chmod(0o600)
    draft.replace(file)


class Authority:
    """A certificate authority that keeps everything in one directory."""

    def __init__(self, directory: Path, name: str = "ca") -> None:
        self._directory = directory
        self._name = _named(name)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.cert = directory / f"{name}.pem"
        builder = _builder(self._name, self._name, self._key, expired=False)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        signed = builder.sign(self._key, hashes.SHA256())
        self.cert.write_bytes(signed.public_bytes(serialization.Encoding.PEM))

    def server(self, file: str = "server", *, host: str = "127.0.0.1", expired: bool = False) -> Pair:
        """A server's; `host` is the one name or address it is good for."""
        try:
            name: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(host))
        except ValueError:
            name = x509.DNSName(host)
        return self._issue(file, name, ExtendedKeyUsageOID.SERVER_AUTH, expired=expired)

    def client(self, file: str = "client", *, expired: bool = False) -> Pair:
        name = x509.DNSName(file)
        return self._issue(file, name, ExtendedKeyUsageOID.CLIENT_AUTH, expired=expired)

    def member(self, file: str = "member", *, host: str = "127.0.0.1") -> Pair:
        """For whoever is a server and a client in one, as the members of a cell are."""
        name = x509.IPAddress(ipaddress.ip_address(host))
        both = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)
        return self._issue(file, name, *both, expired=False)

    def _issue(
        self, file: str, name: x509.GeneralName, *usages: x509.ObjectIdentifier, expired: bool
    ) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            _builder(_named(file), self._name, key, expired=expired)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([name]), critical=False)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        )
        pair = Pair(self._directory / f"{file}.pem", self._directory / f"{file}.key")
        signed = builder.sign(self._key, hashes.SHA256())
        pair.cert.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        pair.key.touch(mode=0o600)
        pair.key.write_bytes(key_bytes(key))
        return pair


def key_bytes(key: ec.EllipticCurvePrivateKey, *, passphrase: bytes | None = None) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption()
        if passphrase is None
        else serialization.BestAvailableEncryption(passphrase),
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, *, expired: bool
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 3 * _DAY)
        .not_valid_after(now - _DAY if expired else now + _DAY)
    )
