"""kazoo's ACLs and authentication on a real ZooKeeper and on Quoracy: who may what."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
from kazoo.exceptions import (
    AuthFailedError,
    BadVersionError,
    InvalidACLError,
    NoAuthError,
    NoNodeError,
)
from kazoo.security import (
    ACL,
    CREATOR_ALL_ACL,
    OPEN_ACL_UNSAFE,
    READ_ACL_UNSAFE,
    Id,
    make_acl,
    make_digest_acl,
)

from tests.interop.kazoo_clients import Clients
from tests.interop.zookeepers import SUPER_PASSWORD


def test_acls_are_kept_and_versioned(clients: Clients) -> None:
    client = clients.connect()
    client.create("/acl")
    acls, stat = client.get_acls("/acl")
    assert (acls, stat.aversion) == (OPEN_ACL_UNSAFE, 0)
    mine = make_digest_acl("ann", "secret", all=True)
    assert client.set_acls("/acl", [mine, *READ_ACL_UNSAFE], version=0).aversion == 1
    acls, stat = client.get_acls("/acl")
    # Whoever may only read is not shown what a password hashes to.
    hidden = ACL(mine.perms, Id("digest", "ann:x"))
    assert (sorted(acls), stat.aversion, stat.version) == (sorted([hidden, *READ_ACL_UNSAFE]), 1, 0)
    with pytest.raises(NoAuthError):
        client.set_acls("/acl", OPEN_ACL_UNSAFE)
    client.add_auth("digest", "ann:secret")
    assert sorted(client.get_acls("/acl")[0]) == sorted([mine, *READ_ACL_UNSAFE])
    with pytest.raises(BadVersionError):
        client.set_acls("/acl", OPEN_ACL_UNSAFE, version=0)
    client.set_acls("/acl", OPEN_ACL_UNSAFE, version=1)
    with pytest.raises(NoNodeError):
        client.get_acls("/none")


def test_permissions_are_those_of_the_node_and_of_its_parent(clients: Clients) -> None:
    owner = clients.connect(auth_data=[("digest", "ann:secret")])
    other = clients.connect()
    owner.create("/private", b"x", acl=CREATOR_ALL_ACL)
    forbidden: Callable[[], object]
    for forbidden in (
        lambda: other.get("/private"),
        lambda: other.set("/private", b""),
        lambda: other.get_children("/private"),
        lambda: other.get_acls("/private"),
        lambda: other.create("/private/child"),
        lambda: other.set_acls("/private", OPEN_ACL_UNSAFE),
    ):
        with pytest.raises(NoAuthError):
            forbidden()
    with contextlib.suppress(NoAuthError):  # since 3.8.4 that, too, wants the right to read
        assert other.exists("/private").dataLength == 1
    owner.create("/private/open")
    assert other.get("/private/open")[0] == b""
    with pytest.raises(NoAuthError):
        other.delete("/private/open")  # the parent's to allow
    with other.transaction() as refused:
        refused.set_data("/private/open", b"1")
        refused.set_data("/private", b"1")
    assert owner.get("/private/open")[0] == b""
    other.add_auth("digest", "ann:secret")
    assert other.get("/private")[0] == b"x"
    other.delete("/private", recursive=True)


def test_the_rights_are_told_apart(clients: Clients) -> None:
    client = clients.connect()
    client.create("/r", acl=[make_acl("world", "anyone", read=True, admin=True)])
    assert client.get("/r")[0] == b""
    forbidden: Callable[[], object]
    for forbidden in (lambda: client.set("/r", b""), lambda: client.create("/r/child")):
        with pytest.raises(NoAuthError):
            forbidden()
    client.set_acls("/r", [make_acl("world", "anyone", write=True, create=True, admin=True)])
    client.set("/r", b"unseen")
    client.create("/r/child")
    for forbidden in (lambda: client.get("/r"), lambda: client.delete("/r/child")):
        with pytest.raises(NoAuthError):
            forbidden()
    client.set_acls("/r", [make_acl("ip", "127.0.0.1/8", all=True)])
    client.delete("/r/child")
    client.set_acls("/r", [make_acl("ip", "10.0.0.0/8", all=True)])
    with pytest.raises(NoAuthError):
        client.get("/r")


@pytest.mark.parametrize(
    "acl",
    [
        pytest.param(CREATOR_ALL_ACL, id="creator of whom nothing is known"),
        pytest.param([ACL(31, Id("unknown", "x"))], id="scheme"),
        pytest.param([ACL(31, Id("digest", "no-colon"))], id="digest"),
        pytest.param([ACL(31, Id("ip", "300.1.1.1"))], id="ip"),
        pytest.param([ACL(31, Id("world", "someone"))], id="world"),
    ],
)
def test_an_acl_that_makes_no_sense_is_refused(clients: Clients, acl: list[ACL]) -> None:
    client = clients.connect()
    with pytest.raises(InvalidACLError):
        client.create("/invalid", acl=acl)
    client.create("/valid")
    for refused in (acl, []):
        with pytest.raises(InvalidACLError):
            client.set_acls("/valid", refused)


def test_default_acl_and_super_user(clients: Clients) -> None:
    client = clients.connect(
        default_acl=[make_digest_acl("ann", "secret", all=True)],
        auth_data=[("digest", "ann:secret"), ("digest", "bob:other")],
    )
    client.create("/mine/deep", makepath=True)
    client.create("/both", acl=CREATOR_ALL_ACL)
    assert {acl.id.id.partition(":")[0] for acl in client.get_acls("/both")[0]} == {"ann", "bob"}
    stranger = clients.connect()
    with pytest.raises(NoAuthError):
        stranger.get("/mine")
    stranger.add_auth("digest", f"super:{SUPER_PASSWORD}")
    assert stranger.get("/mine")[0] == b""
    stranger.set_acls("/mine", OPEN_ACL_UNSAFE)


def test_an_unknown_scheme_of_authentication_ends_the_client(clients: Clients) -> None:
    client = clients.connect()
    with pytest.raises(AuthFailedError):
        client.add_auth("nonsense", "ann:secret")
    with pytest.raises(AuthFailedError):
        client.get("/")
