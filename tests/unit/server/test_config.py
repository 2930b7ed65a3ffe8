"""Addresses, default places and the units people write."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from quoracy.errors import InvalidRequest, Unavailable
from quoracy.server.config import Address, default_engine_url
from quoracy.server.listeners import bind, bound_address, reachable
from quoracy.server.values import format_count, format_size, parse_duration_s, parse_size

HOME = Path("/home/ada")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:7070", Address("127.0.0.1", 7070)),
        ("localhost:0", Address("localhost", 0)),
        ("[::1]:65535", Address("::1", 65535)),
    ],
)
def test_address_reads_back_what_it_prints(text: str, address: Address) -> None:
    assert Address.parse(text) == address
    assert str(address) == text


@pytest.mark.parametrize(
    "text", ["", "7070", ":7070", "host:", "host:x", "host:-1", "::1:7070", "[a]:1", "h:65536"]
)
def test_address_refuses_what_it_cannot_mean(text: str) -> None:
    with pytest.raises(InvalidRequest):
        Address.parse(text)


@pytest.mark.parametrize(
    ("platform", "environ", "directory"),
    [
        ("linux", {}, "/home/ada/.local/state/quoracy"),
        ("linux", {"XDG_STATE_HOME": "/state"}, "/state/quoracy"),
        ("linux", {"XDG_STATE_HOME": "relative"}, "/home/ada/.local/state/quoracy"),
        ("darwin", {"XDG_STATE_HOME": "/state"}, "/home/ada/Library/Application Support/quoracy"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local/quoracy"),
        ("win32", {}, "/home/ada/AppData/Local/quoracy"),
    ],
)
def test_default_data_is_where_the_platform_keeps_state(
    platform: str, environ: dict[str, str], directory: str
) -> None:
    assert default_engine_url(environ, platform=platform, home=HOME) == f"sqlite:{directory}/quoracy.db"


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("1h30m", 5400), ("250ms", 0.25), ("1.5d", 129_600)]
)
def test_duration(text: str, seconds: float) -> None:
    assert parse_duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "1", "h", "-1h", "1h 30m", "1y", "1e3s"])
def test_duration_refuses_what_it_cannot_mean(text: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_duration_s(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [("2GiB", 2 * 1024**3), ("500 MB", 500_000_000), ("1.5mib", 1_572_864), ("77", 77)],
)
def test_size(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "-1", "1 parsec", "1e9"])
def test_size_refuses_what_it_cannot_mean(text: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_size(text)


def test_numbers_are_shown_as_people_write_them() -> None:
    assert [format_size(size) for size in (0, 1023, 1024, 1_572_864)] == [
        "0 B",
        "1023 B",
        "1 KiB",
        "1.5 MiB",
    ]
    assert [format_count(count, "key") for count in (0, 1, 2)] == ["0 keys", "1 key", "2 keys"]


def test_port_0_binds_a_port_and_says_which() -> None:
    with bind(Address("127.0.0.1", 0), setting="--listen-http") as listener:
        assert bound_address(listener).port > 0


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
def test_address_that_is_not_ours_cannot_be_bound(host: str) -> None:
    with pytest.raises(Unavailable, match=host):
        bind(Address(host, 0), setting="--listen-http")


def test_everywhere_is_advertised_as_this_host() -> None:
    assert reachable(Address("127.0.0.1", 1)) == Address("127.0.0.1", 1)
    assert reachable(Address("0.0.0.0", 1)) == Address(socket.gethostname(), 1)
