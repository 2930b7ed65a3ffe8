"""URLs of servers: taken apart exactly, or refused with what is wrong and without the password."""

from __future__ import annotations

import pytest

from quoracy.errors import InvalidRequest
from quoracy.remote.urls import Address, TlsOptions, parse_url


@pytest.mark.parametrize(
    ("url", "addresses"),
    [
        ("etcd://localhost", [("localhost", 2379)]),
        ("quoracy://localhost", [("localhost", 2379)]),
        ("etcd://10.0.0.1:1234/", [("10.0.0.1", 1234)]),
        ("etcd://a,b:1,c", [("a", 2379), ("b", 1), ("c", 2379)]),
        ("etcd://[::1]", [("::1", 2379)]),
        ("etcd://[::1]:2380,[fe80::2]:65535", [("::1", 2380), ("fe80::2", 65535)]),
    ],
)
def test_addresses(url: str, addresses: list[tuple[str, int]]) -> None:
    assert parse_url(url).addresses == tuple(Address(host, port) for host, port in addresses)


def test_user_and_password_may_have_any_character() -> None:
    target = parse_url("etcd://r%40ot:p%3Aa@s%2Fs@host")
    assert (target.user, target.password) == ("r@ot", "p:a@s/s")


def test_there_may_be_an_empty_password() -> None:
    assert parse_url("etcd://root:@host").password == ""


def test_addresses_are_shown_as_they_are_written() -> None:
    assert str(parse_url("etcd://a:1,[::1]")) == "a:1,[::1]:2379"


@pytest.mark.parametrize(
    ("query", "tls"),
    [
        ("", None),
        ("?tls=0", None),
        ("?tls=1", TlsOptions()),
        ("?tls=true&ca=/a%20b.pem", TlsOptions(ca="/a b.pem")),
        (
            "?ca=ca.pem&cert=c.pem&key=k.pem&server_name=db",
            TlsOptions("ca.pem", "c.pem", "k.pem", "db"),
        ),
    ],
)
def test_tls(query: str, tls: TlsOptions | None) -> None:
    assert parse_url(f"etcd://host{query}").tls == tls


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://host", "no server's URL"),
        ("etcd:host", "no server's URL"),
        ("etcd://", "names no host"),
        ("etcd://a,,b", "names no host"),
        ("etcd://:2379", "names no host"),
        ("etcd://host:", "is no port"),
        ("etcd://host:0", "is no port"),
        ("etcd://host:65536", "is no port"),
        ("etcd://host:²", "is no port"),
        ("etcd://host:http", "is no port"),
        ("etcd://::1", "in brackets"),
        ("etcd://[::1", "is no address"),
        ("etcd://[::1]x", "is no address"),
        ("etcd://a,b,a:2379", "twice"),
        ("etcd://host/path", "has the path 'path'"),
        ("etcd://root@host", "USER:PASSWORD"),
        ("etcd://:secret@host", "USER:PASSWORD"),
        ("etcd://host?", None),
        ("etcd://host?tls", "NAME=VALUE"),
        ("etcd://host?tls=maybe", "Give 1 or 0"),
        ("etcd://host?tls=1&tls=1", "twice"),
        ("etcd://host?verify=0", "verify is no option"),
        ("etcd://host?tls=0&ca=x", "turns TLS off and configures it"),
        ("etcd://host?cert=x", "belong together"),
    ],
)
def test_what_is_wrong_is_said(url: str, said: str | None) -> None:
    if said is None:
        parse_url(url)
        return
    with pytest.raises(InvalidRequest, match=said):
        parse_url(url)


@pytest.mark.parametrize("rest", ["host:x", "host?x=1", "host/path", "a,a"])
def test_an_error_does_not_show_the_password(rest: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_url(f"etcd://root:secret@{rest}")
    assert "secret" not in str(caught.value)
    assert "root" in str(caught.value)
