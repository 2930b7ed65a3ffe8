"""TLS on a real socket: who gets in, what is agreed on, and certificates that change under way."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop
from cryptography.hazmat.primitives.asymmetric import ec
from msgspec.structs import replace as changed

from quoracy.clock import ManualClock
from quoracy.errors import InvalidRequest
from quoracy.server.config import TlsConfig, TlsVersion
from quoracy.server.listeners import Certificates
from tests.support.certificates import Authority, Pair, key_bytes, replace


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def loop_runner(request: pytest.FixtureRequest) -> Iterator[asyncio.Runner]:
    """Both event loops, since each wraps connections in its own way."""
    with asyncio.Runner(loop_factory=request.param) as runner:
        yield runner


@pytest.fixture
def ca(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def config(ca: Authority) -> TlsConfig:
    server = ca.server()
    return TlsConfig(server.cert, server.key)


def client_context(ca: Authority, pair: Pair | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=ca.cert)
    if pair is not None:
        context.load_cert_chain(pair.cert, pair.key)
    return context


@contextlib.asynccontextmanager
async def echoing(certificates: Certificates) -> AsyncIterator[int]:
    """A server that sends back what it reads; its port."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(100):
                writer.write(data)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=certificates.front)
    async with server:
        yield server.sockets[0].getsockname()[1]


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.secure: ssl.SSLObject = writer.get_extra_info("ssl_object")

    async def echo(self, data: bytes) -> bytes:
        self._writer.write(data)
        return await self._reader.read(100)

    @property
    def serial(self) -> str:
        """Of the server's certificate."""
        shown = self.secure.getpeercert()
        assert shown is not None
        return str(shown["serialNumber"])

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


@contextlib.asynccontextmanager
async def connected(port: int, context: ssl.SSLContext) -> AsyncIterator[Client]:
    client = Client(*await asyncio.open_connection("127.0.0.1", port, ssl=context))
    try:
        yield client
    finally:
        await client.close()


async def is_served(port: int, context: ssl.SSLContext) -> bool:
    """Whether a round trip works: in TLS 1.3 a client learns only then that it was refused."""
    try:
        async with connected(port, context) as client:
            return await client.echo(b"x") == b"x"
    except (ssl.SSLError, ConnectionError):
        return False


async def serial(port: int, context: ssl.SSLContext) -> str:
    async with connected(port, context) as client:
        return client.serial


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [(["h2"], "h2"), (["http/1.1"], "http/1.1"), (["http/1.1", "h2"], "h2"), (["spdy/3"], None)],
)
async def test_alpn_prefers_http_2(
    ca: Authority, config: TlsConfig, offered: list[str], chosen: str | None
) -> None:
    context = client_context(ca)
    context.set_alpn_protocols(offered)
    async with echoing(Certificates(config)) as port, connected(port, context) as client:
        assert client.secure.selected_alpn_protocol() == chosen


@pytest.mark.parametrize(
    ("version_min", "client_max", "served"),
    [
        ("1.2", ssl.TLSVersion.TLSv1_2, True),
        ("1.3", ssl.TLSVersion.TLSv1_2, False),
        ("1.3", ssl.TLSVersion.TLSv1_3, True),
    ],
)
async def test_oldest_version_that_is_taken(
    ca: Authority,
    config: TlsConfig,
    version_min: TlsVersion,
    client_max: ssl.TLSVersion,
    served: bool,
) -> None:
    context = client_context(ca)
    context.maximum_version = client_max
    async with echoing(Certificates(changed(config, version_min=version_min))) as port:
        assert await is_served(port, context) is served


def test_client_certificates_are_asked_for_and_verified(
    ca: Authority, config: TlsConfig, tmp_path: Path, loop_runner: asyncio.Runner
) -> None:
    stranger = Authority(tmp_path, "stranger")

    async def ask() -> list[bool]:
        async with echoing(Certificates(changed(config, client_ca=ca.cert))) as port:
            return [
                await is_served(port, client_context(ca, pair))
                for pair in (
                    ca.client(),
                    None,
                    stranger.client("unknown"),
                    ca.client("late", expired=True),
                )
            ]

    assert loop_runner.run(ask()) == [True, False, False, False]


async def test_certificate_for_another_name_is_refused_by_clients(ca: Authority) -> None:
    server = ca.server(host="elsewhere.example")
    async with echoing(Certificates(TlsConfig(server.cert, server.key))) as port:
        assert not await is_served(port, client_context(ca))


def test_renewed_certificate_is_for_new_connections_and_drops_none(
    ca: Authority, config: TlsConfig, loop_runner: asyncio.Runner
) -> None:
    clock = ManualClock()
    context = client_context(ca)

    async def renew() -> None:
        async with echoing(Certificates(config, clock=clock)) as port:
            async with connected(port, context) as old:
                ca.server("renewed").copy_to(Pair(config.cert, config.key))
                assert await serial(port, context) == old.serial, "within a second nobody looks"
                clock.jump(1.0)
                assert await serial(port, context) != old.serial
                assert await old.echo(b"still there") == b"still there"

    loop_runner.run(renew())


def test_authority_that_is_taken_out_shuts_out_its_clients(
    ca: Authority, config: TlsConfig, tmp_path: Path, loop_runner: asyncio.Runner
) -> None:
    """Resumed sessions, too, which would not show a certificate again."""
    clock = ManualClock()
    new_ca = Authority(tmp_path, "new-ca")
    old, new = client_context(ca, ca.client("old")), client_context(ca, new_ca.client("new"))
    clients_ca = tmp_path / "clients.pem"
    clients_ca.write_bytes(ca.cert.read_bytes())

    async def change() -> list[tuple[bool, bool]]:
        async with echoing(Certificates(changed(config, client_ca=clients_ca), clock=clock)) as port:
            seen = [(await is_served(port, old), await is_served(port, new))]
            replace(clients_ca, new_ca.cert.read_bytes())
            clock.jump(1.0)
            return [*seen, (await is_served(port, old), await is_served(port, new))]

    assert loop_runner.run(change()) == [(True, False), (False, True)]


async def test_session_of_a_client_that_was_shut_out_is_not_resumed(
    ca: Authority, config: TlsConfig, tmp_path: Path
) -> None:
    new_ca = Authority(tmp_path, "new-ca")
    clients_ca = tmp_path / "clients.pem"
    clients_ca.write_bytes(ca.cert.read_bytes())
    certificates = Certificates(changed(config, client_ca=clients_ca))
    context = client_context(ca, ca.client())
    context.maximum_version = ssl.TLSVersion.TLSv1_2  # where a session is known after the handshake
    session = (await asyncio.to_thread(_handshake, certificates, context, None)).session
    assert session is not None
    again = await asyncio.to_thread(_handshake, certificates, context, session)
    assert again.session_reused, "or this test shows nothing"
    replace(clients_ca, new_ca.cert.read_bytes())
    certificates.read_again()
    with pytest.raises(ssl.SSLError):
        await asyncio.to_thread(_handshake, certificates, context, session)


def _handshake(
    certificates: Certificates, context: ssl.SSLContext, session: ssl.SSLSession | None
) -> ssl.SSLObject:
    """In memory, since asyncio has no way to offer a session."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(to_client, to_server, server_hostname="127.0.0.1", session=session)
    waiting = [client, certificates.front.wrap_bio(to_server, to_client, server_side=True)]
    while waiting:
        peer = waiting.pop(0)
        try:
            peer.do_handshake()
        except ssl.SSLWantReadError:
            waiting.append(peer)
    return client


async def test_broken_renewal_keeps_the_old_certificate_and_is_logged_once(
    ca: Authority, config: TlsConfig, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    context = client_context(ca)
    async with echoing(Certificates(config, clock=clock)) as port:
        before = await serial(port, context)
        replace(config.cert, b"not a certificate")
        for _ in range(3):
            clock.jump(1.0)
            assert await serial(port, context) == before
        errors = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
        assert len(errors) == 1
        assert str(config.cert) in errors[0]
        ca.server("repaired").copy_to(Pair(config.cert, config.key))
        clock.jump(1.0)
        assert await serial(port, context) != before


async def test_renewal_that_is_half_done_waits_for_the_other_half(
    ca: Authority, config: TlsConfig
) -> None:
    clock = ManualClock()
    context, renewed = client_context(ca), ca.server("renewed")
    async with echoing(Certificates(config, clock=clock)) as port:
        before = await serial(port, context)
        replace(config.cert, renewed.cert.read_bytes())
        clock.jump(1.0)
        assert await serial(port, context) == before
        replace(config.key, renewed.key.read_bytes())
        clock.jump(1.0)
        assert await serial(port, context) != before


async def test_asked_to_read_again_it_does_so_at_once(ca: Authority, config: TlsConfig) -> None:
    certificates = Certificates(config, clock=ManualClock())
    async with echoing(certificates) as port:
        before = await serial(port, client_context(ca))
        ca.server("renewed").copy_to(Pair(config.cert, config.key))
        certificates.read_again()
        assert await serial(port, client_context(ca)) != before


# -- files that cannot be used


def with_file(config: TlsConfig, which: str, file: Path) -> TlsConfig:
    files: dict[str, Any] = {which: file}
    return changed(config, **files)


def refusal(config: TlsConfig) -> str:
    with pytest.raises(InvalidRequest) as caught:
        Certificates(config)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("which", ["cert", "key", "client_ca"])
@pytest.mark.parametrize("fault", ["missing", "a directory", "empty"])
def test_file_that_cannot_be_used_is_named_with_its_setting(
    config: TlsConfig, tmp_path: Path, which: str, fault: str
) -> None:
    file = tmp_path / "broken.pem"
    if fault == "a directory":
        file.mkdir()
    elif fault == "empty":
        file.touch()
    told = refusal(with_file(config, which, file))
    assert str(file) in told
    assert f"tls-{which.replace('_', '-')}" in told


def test_key_of_another_certificate_is_told(ca: Authority, config: TlsConfig) -> None:
    other = ca.server("other")
    told = refusal(changed(config, key=other.key))
    assert str(other.key) in told
    assert str(config.cert) in told


def test_key_with_a_passphrase_is_refused_and_nobody_is_asked(config: TlsConfig) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    config.key.write_bytes(key_bytes(key, passphrase=b"secret"))
    assert "passphrase" in refusal(config)


@pytest.mark.parametrize("which", ["cert", "key", "client_ca"])
def test_pem_that_is_damaged_inside_is_told(config: TlsConfig, tmp_path: Path, which: str) -> None:
    kind = "PRIVATE KEY" if which == "key" else "CERTIFICATE"
    file = tmp_path / "damaged.pem"
    file.write_text(f"-----BEGIN {kind}-----\nAAAA\n-----END {kind}-----\n")
    assert str(file) in refusal(with_file(config, which, file))


def test_key_that_everybody_can_read_is_warned_of(
    config: TlsConfig, caplog: pytest.LogCaptureFixture
) -> None:
    Certificates(config)
    assert caplog.messages == []
    config.key.chmod(0o644)
    Certificates(config)
    assert len(caplog.messages) == 1
    assert str(config.key) in caplog.messages[0]


@pytest.mark.parametrize("kind", ["expired", "a client's"])
def test_certificate_that_clients_will_refuse_is_warned_of_and_used(
    ca: Authority, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    pair = ca.server("late", expired=True) if kind == "expired" else ca.client()
    Certificates(TlsConfig(pair.cert, pair.key))
    assert [str(pair.cert) in message for message in caplog.messages] == [True]
