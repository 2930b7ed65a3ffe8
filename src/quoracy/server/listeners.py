"""Listening sockets, and TLS whose certificates are renewed while the server runs.

`Certificates` watches the files and builds a context from them; its `front` is the context that a
listener is given once.  `front` lets the newest context wrap each connection.  So a renewal is used by
every handshake that begins after it, and affects no existing connection.  A context is replaced, never
changed: this drops authorities that were removed, and the sessions that clients made under them and
could otherwise resume without showing a certificate again.

Invariants
    * Files that cannot be used never replace files that could: the old context stays, and one error is
      logged for each state of the files, not one for each connection.
    * Watching the files costs one `stat` of each, once a second at most.
"""

from __future__ import annotations

import errno
import logging
import socket
import ssl
import sys
from pathlib import Path
from typing import Any

from quoracy.clock import Clock, SystemClock
from quoracy.errors import InvalidRequest, Unavailable
from quoracy.server.config import Address, TlsConfig

__all__ = ["Certificates", "bind", "bound_address", "reachable"]

_log = logging.getLogger(__name__)

CHECK_INTERVAL_S = 1.0

# For TLS 1.2, what RFC 9113, section 9.2.2, leaves HTTP/2: ephemeral keys and authenticated encryption.
_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
_ALPN = ["h2", "http/1.1"]


def bind(address: Address, *, setting: str) -> socket.socket:
    """A socket that does not listen yet: until it does, connections are refused, not kept waiting.

    `setting` is named in the error if the address cannot be used.
    """
    try:
        family, kind, protocol, _, name = socket.getaddrinfo(
            _encoded(address.host), address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise Unavailable(f"cannot listen on {address}: {error.strerror or error}.") from error
    listener = socket.socket(family, kind, protocol)
    try:
        if sys.platform != "win32":  # where it would let two programs share a port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(name)
    except OSError as error:
        listener.close()
        raise Unavailable(f"cannot listen on {address}: {_explain(error, setting)}") from error
    return listener


def bound_address(listener: socket.socket) -> Address:
    """The address of a socket, with the port that the system chose for port 0."""
    host, port, *_ = listener.getsockname()
    return Address(host, port)


def reachable(address: Address) -> Address:
    """An address that others can connect to: the host's name instead of "every network"."""
    if address.host in ("0.0.0.0", "::"):
        return Address(socket.gethostname(), address.port)
    return address


def _encoded(host: str) -> bytes | str:
    # For text, Python imports IDNA, which addresses and most names do not need.
    return host.encode() if host.isascii() else host


def _explain(error: OSError, setting: str) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return (
                "another program (another Quoracy?) listens there. "
                f"Stop it, or choose another port with {setting}."
            )
        case errno.EADDRNOTAVAIL:
            return (
                f"this machine does not have that address. Give {setting} one it has, "
                "127.0.0.1, or 0.0.0.0 for all of them."
            )
        case errno.EACCES:
            return f"this user may not use that port. Give {setting} one above 1023."
        case _:
            return f"{error.strerror or error}."


class Certificates:
    """The files of one listener, read again when they change.

    Raises `InvalidRequest`, which names the file and the problem, if they cannot be used at the start.
    """

    def __init__(self, config: TlsConfig, *, clock: Clock | None = None) -> None:
        self._config = config
        self._clock = clock or SystemClock()
        self._seen = _state(config)
        self._checked_at = self._clock.now()
        self._current = _build(config)
        self.front: ssl.SSLContext = _Front(ssl.PROTOCOL_TLS_SERVER)
        assert isinstance(self.front, _Front)
        self.front.certificates = self

    def current(self) -> ssl.SSLContext:
        """The context for a handshake that begins now."""
        now = self._clock.now()
        if now - self._checked_at >= CHECK_INTERVAL_S:
            self._checked_at = now
            if (state := _state(self._config)) != self._seen:
                self._replace(state)
        return self._current

    def read_again(self) -> None:
        """Read the files now, whether or not they changed."""
        self._replace(_state(self._config))

    def _replace(self, state: _State) -> None:
        # The state is from before the files are read: a change in between is noticed at the next check.
        self._seen = state
        try:
            self._current = _build(self._config)
        except (InvalidRequest, OSError) as error:
            _log.error("the certificates were not renewed, the old ones stay in use: %s", error)
        else:
            _log.info("certificates read from %s", self._config.cert)


class _Front(ssl.SSLContext):
    """The context that a listener is given: the newest context wraps each connection.

    Both asyncio and uvloop wrap each connection with `wrap_bio` of the context they were started with.
    """

    certificates: Certificates

    def wrap_bio(self, *args: Any, **options: Any) -> ssl.SSLObject:
        return self.certificates.current().wrap_bio(*args, **options)

    def wrap_socket(self, *args: Any, **options: Any) -> ssl.SSLSocket:
        return self.certificates.current().wrap_socket(*args, **options)


_State = tuple[tuple[int, int, int, int] | None, ...]


def _files(config: TlsConfig) -> list[Path]:
    return [file for file in (config.cert, config.key, config.client_ca) if file is not None]


def _state(config: TlsConfig) -> _State:
    return tuple(_state_of(file) for file in _files(config))


def _state_of(file: Path) -> tuple[int, int, int, int] | None:
    try:
        found = file.stat()
    except OSError:  # reading it will say why
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _build(config: TlsConfig) -> ssl.SSLContext:
    _require_pem(config.cert, "tls-cert", b"-----BEGIN CERTIFICATE-----", "a certificate")
    _require_pem(config.key, "tls-key", b"PRIVATE KEY-----", "a private key")
    _warn_if_exposed(config.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}[
        config.version_min
    ]
    context.options |= ssl.OP_NO_RENEGOTIATION  # RFC 9113, section 9.2.1
    context.set_ciphers(_CIPHERS)
    context.set_alpn_protocols(_ALPN)
    _load_pair(context, config)
    if config.client_ca is not None:
        _require_pem(config.client_ca, "tls-client-ca", b"-----BEGIN CERTIFICATE-----", "a certificate")
        try:
            context.load_verify_locations(cafile=config.client_ca)
        except ssl.SSLError as error:
            raise InvalidRequest(
                f"tls-client-ca: {config.client_ca} holds no usable certificate ({_reason(error)})."
            ) from error
        context.verify_mode = ssl.CERT_REQUIRED
    _warn_if_refused(config)
    return context


def _require_pem(file: Path, setting: str, mark: bytes, what: str) -> None:
    try:
        content = file.read_bytes()
    except OSError as error:
        raise InvalidRequest(f"{setting}: {file} cannot be read: {error.strerror or error}.") from error
    if mark not in content:
        raise InvalidRequest(f"{setting}: {file} does not hold {what} in PEM form.")


def _load_pair(context: ssl.SSLContext, config: TlsConfig) -> None:
    def refuse_to_ask() -> str:
        # Without this, OpenSSL would ask on the terminal.
        raise InvalidRequest(
            f"tls-key: {config.key} needs a passphrase. "
            f"`openssl pkey -in {config.key} -out NEW` writes it without one."
        )

    try:
        context.load_cert_chain(config.cert, config.key, password=refuse_to_ask)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise InvalidRequest(
                f"tls-key: {config.key} is not the key of the certificate in {config.cert}."
            ) from error
        raise InvalidRequest(
            f"tls-cert, tls-key: {config.cert} with {config.key} cannot be used ({_reason(error)})."
        ) from error


def _warn_if_exposed(key: Path) -> None:
    if sys.platform != "win32" and key.stat().st_mode & 0o004:
        _log.warning("every user of this machine can read the private key %s: chmod o-r %s", key, key)


def _warn_if_refused(config: TlsConfig) -> None:
    """Shake hands with ourselves, as a client that trusts just this certificate.

    Whether anybody else trusts it cannot be known here; whether it has expired, or may be a server's at
    all, can.  It is served in any case: a clock may be wrong, and some clients do not look.
    """
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _load_pair(server, config)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    client.load_verify_locations(cafile=config.cert)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    peers = [
        client.wrap_bio(to_client, to_server),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    while peers:
        peer = peers.pop(0)
        try:
            peer.do_handshake()
        except ssl.SSLWantReadError:
            peers.append(peer)
        except ssl.SSLCertVerificationError as error:
            _log.warning(
                "clients will refuse the certificate %s: %s", config.cert, error.verify_message
            )
            return


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).lower().replace("_", " ")
