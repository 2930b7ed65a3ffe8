"""Who the members of a cell are, and which of them this machine is."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from quoracy.errors import InvalidRequest
from quoracy.remote.urls import Address
from quoracy.server.cell.config import (
    CellConfig,
    CellMember,
    CellTls,
    choose_node,
    is_here,
    parse_cell_name,
    parse_members,
)
from quoracy.server.sources import gather

THREE = "a=10.0.0.1,b=10.0.0.2,c=10.0.0.3"


def test_members_have_ports_beside_etcds_own() -> None:
    assert parse_members("a=10.0.0.1, b=db.example:7000,c=[::1]:7000:7001") == (
        CellMember("a", "10.0.0.1", 2380, 2381),
        CellMember("b", "db.example", 7000, 2381),
        CellMember("c", "::1", 7000, 7001),
    )


@pytest.mark.parametrize(
    ("text", "blamed"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("a=", "a="),
        ("=10.0.0.1", "=10.0.0.1"),
        ("a b=10.0.0.1", "a b=10.0.0.1"),
        ("a=10.0.0.1:x", "a=10.0.0.1:x"),
        ("a=10.0.0.1:1:2:3", "a=10.0.0.1:1:2:3"),
        ("a=::1", "a=::1"),
        ("a=10.0.0.1,", "''"),
        ("a=10.0.0.1:0", "0 is no port"),
        ("a=10.0.0.1:1:65536", "65536 is no port"),
        ("a=0.0.0.0", "0.0.0.0"),
        ("a=10.0.0.1,a=10.0.0.2", "the name a"),
        ("a=10.0.0.1,b=10.0.0.1", "the address 10.0.0.1:2380"),
        ("a=10.0.0.1:5:5", "the address 10.0.0.1:5"),
        (",".join(f"m{n}=10.0.0.{n}" for n in range(10)), "10 members"),
    ],
)
def test_members_that_cannot_be_are_refused(text: str, blamed: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_members(text)
    assert blamed in str(caught.value)


def test_node_is_the_member_whose_address_this_machine_has() -> None:
    members = parse_members(THREE)
    assert choose_node(members, None, here=lambda host: host == "10.0.0.2") == "b"
    assert choose_node(members, "c", here=lambda host: host == "10.0.0.2") == "c"


def test_node_that_cannot_be_told_has_to_be_named() -> None:
    members = parse_members(THREE)
    with pytest.raises(InvalidRequest, match=r"has no member's address.*--node a"):
        choose_node(members, None, here=lambda _: False)
    with pytest.raises(InvalidRequest, match="could be any of a, b, c"):
        choose_node(members, None, here=lambda _: True)
    with pytest.raises(InvalidRequest, match=r"'d' is no member of the cell\. Its members: a, b, c"):
        choose_node(members, "d")


def test_this_machines_addresses_and_names_are_here() -> None:
    assert is_here("127.0.0.1")
    assert is_here(socket.gethostname())
    assert not is_here("192.0.2.1")  # TEST-NET-1 is nobody's
    assert not is_here("no-such-host.invalid")


@pytest.mark.parametrize("name", ["", "-x", "a b", "a/b", "x" * 64])
def test_name_of_a_cell_is_a_word(name: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_cell_name(name)


def test_store_asks_the_own_member_first_and_with_the_cells_certificates() -> None:
    tls = CellTls(Path("/c.pem"), Path("/c.key"), Path("/ca.pem"))
    config = CellConfig("x", parse_members(THREE), "b", Path("/data"), tls=tls)
    target = config.target()
    assert target.addresses[0] == Address("10.0.0.2", 2381)
    assert set(target.addresses) == {Address(f"10.0.0.{n}", 2381) for n in (1, 2, 3)}
    assert target.tls is not None
    assert (target.tls.ca, target.tls.cert, target.tls.key) == ("/ca.pem", "/c.pem", "/c.key")
    assert config.peer_url(config.own) == "https://10.0.0.2:2380"


def refusal(flags: dict[str, str]) -> str:
    with pytest.raises(InvalidRequest) as caught:
        gather(flags, {}, file=None).config()
    return str(caught.value)


def test_settings_that_contradict_a_cell_are_refused() -> None:
    cell = {"cell": THREE, "node": "a"}
    assert refusal(cell | {"engine": "memory:"}).startswith("--engine and --cell both say")
    assert refusal({"cell": THREE, "node": "z"}).startswith("--node: 'z' is no member")
    assert refusal(cell | {"cell-cert": "c.pem"}) == "--cell-cert needs cell-key, cell-ca as well."
    assert refusal(cell | {"etcd-flags": "snapshot"}).startswith("--etcd-flags: 'snapshot' is no flag")
    assert refusal(cell | {"etcd-flags": "'--a"}).startswith("--etcd-flags: ")
