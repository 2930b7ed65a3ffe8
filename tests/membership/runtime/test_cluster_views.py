"""Members for users, and the addresses they are at."""

from __future__ import annotations

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quoracy.errors import InvalidRequest, Unavailable
from quoracy.membership.model import Member, MemberState
from quoracy.membership.runtime.addresses import advertised, join_address, parse_address, resolve
from quoracy.membership.runtime.member_view import MemberView, Views, decode_meta, encode_meta
from quoracy.membership.settings import META_BYTES_MAX

short = st.text(max_size=8)


@given(st.dictionaries(short, short, max_size=8))
def test_text_comes_back_as_it_was_said(meta: dict[str, str]) -> None:
    assert decode_meta(encode_meta(meta)) == (meta, b"")


@given(st.binary(max_size=META_BYTES_MAX - 3))
def test_bytes_come_back_as_they_were_said(meta: bytes) -> None:
    assert decode_meta(encode_meta(meta)) == ({}, meta)


@given(st.binary(max_size=META_BYTES_MAX))
def test_any_bytes_of_others_can_be_shown(raw: bytes) -> None:
    meta, meta_bytes = decode_meta(raw)
    assert not (meta and meta_bytes)
    assert all(isinstance(each, str) for pair in meta.items() for each in pair)


def test_metadata_may_fill_the_limit_and_not_exceed_it() -> None:
    assert len(encode_meta(b"x" * (META_BYTES_MAX - 3))) == META_BYTES_MAX
    with pytest.raises(InvalidRequest, match=r"takes 513 bytes; the limit is 512.*cluster\.state"):
        encode_meta(b"x" * (META_BYTES_MAX - 2))


def test_metadata_that_is_not_text_is_refused_by_name() -> None:
    with pytest.raises(InvalidRequest, match="'port': 80 is not"):
        encode_meta({"port": 80})  # type: ignore[dict-item]


def test_metadata_cannot_be_changed_by_who_reads_it() -> None:
    view = MemberView.of(Member("a", "a:1", 1, meta=encode_meta({"zone": "a"})))
    with pytest.raises(TypeError):
        view.meta["zone"] = "b"  # type: ignore[index]


def test_a_member_that_did_not_change_is_the_same_object() -> None:
    views, member = Views(), Member("a", "a:1", 1)
    first = views.of(member)
    assert views.of(member) is first
    changed = views.of(Member("a", "a:1", 2, MemberState.SUSPECT))
    assert (changed.incarnation, changed.state) == (2, MemberState.SUSPECT)
    views.forget("a")
    views.forget("nobody")


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("10.0.0.1:80", "10.0.0.1", 80),
        ("seed.example", "seed.example", 7946),
        ("[fe80::1]", "fe80::1", 7946),
        ("[::]:0", "::", 0),
        ("2001:db8::7", "2001:db8::7", 7946),
    ],
)
def test_addresses_are_read(text: str, host: str, port: int) -> None:
    assert parse_address(text) == (host, port)


@pytest.mark.parametrize(
    "text", ["", ":80", "a:", "a:b", "a:65536", "[::1", "[::1]x", "[]:1", "a:-1", "a:٣"]
)
def test_what_is_no_address_is_refused_with_what_is(text: str) -> None:
    with pytest.raises(InvalidRequest, match=r"is no address\. Write HOST, HOST:PORT or"):
        parse_address(text)


@given(st.ip_addresses(), st.integers(0, 65_535))
def test_what_is_written_can_be_read(host: object, port: int) -> None:
    assert parse_address(join_address(str(host), port)) == (str(host), port)


async def test_a_name_is_looked_up_and_an_address_is_what_it_is() -> None:
    assert "127.0.0.1:8000" in await resolve("localhost:8000")
    assert await resolve("127.0.0.1") == ["127.0.0.1:7946"]
    assert await resolve("[::1]:1") == ["[::1]:1"]


async def test_a_name_that_nobody_knows_is_told_by_name() -> None:
    with pytest.raises(Unavailable, match=r"'no-such-machine\.invalid' is not the name of a machine"):
        await resolve("no-such-machine.invalid")


def test_an_address_of_its_own_is_what_others_are_told() -> None:
    assert advertised("127.0.0.1:7946", ["10.9.9.9:1"]) == "127.0.0.1:7946"


def test_everywhere_is_told_as_one_address_of_this_machine() -> None:
    host, port = parse_address(advertised("0.0.0.0:7000"))
    assert port == 7000
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind((host, 0))  # only an address that this machine has can be bound
