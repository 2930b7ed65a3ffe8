"""ACLs: what may be set, who may do what, and what addauth makes of its caller.

The tables say what ZooKeeper 3.8 answered when it was asked, IPv6 apart (see there).
"""

from __future__ import annotations

import base64
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quoracy.faces.zookeeper.tree.acl import (
    OPEN_ACL,
    SUPER,
    Identity,
    add_auth,
    check,
    digest_of,
    fix_up,
    identities,
    interned,
    user_name,
    with_identities,
)
from quoracy.faces.zookeeper.tree.paths import ZkError
from quoracy.wire.zookeeper.codes import Err, Perm
from quoracy.wire.zookeeper.requests import Acl

HERE = "127.0.0.1"
ALICE = Identity("digest", digest_of(b"alice:secret"))
BOB = Identity("digest", digest_of(b"bob:secret"))


def one(scheme: str, id: str, perms: int = 31) -> tuple[Acl, ...]:
    return (Acl(perms, scheme, id),)


# -- what may be set -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scheme", "id"),
    [
        ("world", "anyone"),
        ("digest", "a:b"),
        ("digest", "a:b:"),  # Java's split drops what is empty at the end
        ("digest", ":b"),
        ("ip", "1.2.3.4"),
        ("ip", "1.2.3.4/0"),
        ("ip", "1.2.3.4/32"),
        ("ip", "+1.02.3.4"),  # Integer.parseInt takes it
        ("ip", "-0.2.3.4"),
    ],
)
@pytest.mark.parametrize("perms", [31, 1, 0, 32, -1])
def test_a_valid_entry_is_stored_as_it_is(scheme: str, id: str, perms: int) -> None:
    assert fix_up(one(scheme, id, perms), ()) == one(scheme, id, perms)


@pytest.mark.parametrize(
    ("scheme", "id"),
    [
        ("world", "x"),
        ("world", ""),
        ("foo", "x"),
        ("", ""),
        ("super", ""),
        ("sasl", "x"),
        ("x509", "CN=x"),
        ("digest", ""),
        ("digest", "a"),
        ("digest", "a:"),
        ("digest", ":"),
        ("digest", "a:b:c"),
        ("ip", ""),
        ("ip", "1.2.3"),
        ("ip", "1.2.3.4.5"),
        ("ip", "1.2.3.256"),
        ("ip", "1.2.3.-1"),
        ("ip", "1.2.3.x"),
        ("ip", "1.2.3."),
        ("ip", "1.2.3.4/"),
        ("ip", "1.2.3.4/33"),
        ("ip", "1.2.3.4/-1"),
        ("ip", "1.2.3.4/8/9"),
        ("ip", "1.2.3." + "9" * 5000),
        ("ip", "::g"),
        ("ip", "::1/129"),
    ],
)
def test_an_entry_its_scheme_does_not_take_is_an_invalid_acl(scheme: str, id: str) -> None:
    with pytest.raises(ZkError) as refused:
        fix_up(OPEN_ACL + one(scheme, id), (ALICE,))
    assert refused.value.code is Err.INVALID_ACL


def test_an_empty_acl_is_invalid() -> None:
    with pytest.raises(ZkError) as refused:
        fix_up((), ())
    assert refused.value.code is Err.INVALID_ACL


def test_an_entry_that_occurs_twice_is_kept_once_and_in_place() -> None:
    read, everything = Acl(1, "world", "anyone"), Acl(31, "world", "anyone")
    assert fix_up((everything, everything), ()) is OPEN_ACL
    assert fix_up((read, everything, read), ()) == (read, everything)


def test_auth_stands_for_what_the_caller_has_proved() -> None:
    # The address is no proof, and super is no scheme that an ACL knows.
    ids = (Identity("ip", HERE), ALICE, SUPER, BOB)
    assert fix_up(one("auth", "ignored", 3), ids) == (Acl(3, *ALICE), Acl(3, *BOB))
    # Entries are compared before "auth" is replaced, as in ZooKeeper.
    assert len(fix_up((Acl(3, "auth", ""), Acl(3, "auth", "x")), ids)) == 4


@pytest.mark.parametrize("ids", [(), (Identity("ip", HERE),), (SUPER,)])
def test_auth_of_a_caller_who_has_proved_nothing_is_invalid(ids: tuple[Identity, ...]) -> None:
    with pytest.raises(ZkError) as refused:
        fix_up(one("auth", ""), ids)
    assert refused.value.code is Err.INVALID_ACL


def test_equal_acls_become_one_object() -> None:
    assert fix_up(one("world", "anyone"), ()) is OPEN_ACL
    assert interned(one("digest", "a:b")) is interned(one("digest", "a:b"))


def test_the_table_of_acls_is_bounded() -> None:
    for number in range(10_000):
        interned(one("digest", f"{number}:x"))
    assert interned(one("world", "anyone")) is OPEN_ACL
    assert interned(one("digest", "9999:x")) is interned(one("digest", "9999:x"))


# -- who may do what -------------------------------------------------------------------------


@pytest.mark.parametrize("perm", [Perm.READ, Perm.WRITE, Perm.CREATE, Perm.DELETE, Perm.ADMIN])
def test_only_the_permission_that_was_granted_is_allowed(perm: Perm) -> None:
    for granted in Perm:
        allowed = check(one("world", "anyone", int(granted)), perm, (), HERE)
        assert allowed == bool(granted & perm)


def test_an_open_or_empty_acl_forbids_nothing() -> None:
    for acl in (OPEN_ACL, one("world", "anyone"), ()):
        assert check(acl, Perm.ADMIN, (), HERE)


def test_one_of_several_bits_is_enough() -> None:
    assert check(one("world", "anyone", 16), Perm.READ | Perm.ADMIN, (), HERE)
    assert not check(one("world", "anyone", 2), Perm.READ | Perm.ADMIN, (), HERE)


def test_a_digest_opens_to_name_and_password_only() -> None:
    acl = one(*ALICE)
    assert check(acl, Perm.READ, (ALICE,), HERE)
    assert check(acl, Perm.READ, (BOB, ALICE), HERE)
    assert not check(acl, Perm.READ, (), HERE)
    assert not check(acl, Perm.READ, (BOB,), HERE)
    assert not check(acl, Perm.READ, (Identity("digest", digest_of(b"alice:other")),), HERE)
    assert not check(acl, Perm.READ, (Identity("ip", ALICE.id),), HERE)


def test_the_first_entry_that_fits_decides_and_none_forbids() -> None:
    acl = (Acl(0, *ALICE), Acl(1, "world", "anyone"))
    assert check(acl, Perm.READ, (ALICE,), HERE)
    assert not check(acl, Perm.WRITE, (ALICE,), HERE)


def test_super_and_skip_acl_pass_everything() -> None:
    closed = one("world", "anyone", 0)
    assert not check(closed, Perm.READ, (ALICE,), HERE)
    assert check(closed, Perm.READ, (SUPER,), HERE)
    assert check(closed, Perm.READ, (), HERE, skip_acl=True)


@pytest.mark.parametrize(
    ("address", "expression", "matches"),
    [
        ("10.1.2.3", "10.1.2.3", True),
        ("10.1.2.3", "10.1.2.4", False),
        ("10.1.2.3", "10.1.2.3/32", True),
        ("10.1.2.3", "10.1.2.0/24", True),
        ("10.1.2.3", "10.1.2.99/24", True),
        ("10.1.2.3", "10.1.3.0/24", False),
        ("10.1.2.3", "10.1.2.2/31", True),
        ("10.1.2.3", "10.1.2.0/31", False),
        ("10.1.2.3", "10.0.0.0/15", True),
        ("10.1.2.3", "11.0.0.0/7", True),
        ("10.1.2.3", "12.0.0.0/7", False),
        ("10.1.2.3", "255.255.255.255/0", True),
        ("10.1.2.3", "no address", False),
        ("10.1.2.3", "10.1.2.3/64", False),
        ("unknown", "0.0.0.0/0", False),
        # As ZooKeeper 3.10 does it; 3.8 and 3.9 refuse to set such an ACL.
        ("2001:db8::1", "2001:db8::1", True),
        ("2001:db8::1", "2001:0DB8:0:0:0:0:0:1", True),
        ("2001:db8::1", "2001:db8::/32", True),
        ("2001:db8::1", "2001:db9::/32", False),
        ("2001:db8::1", "::/0", True),
        ("2001:db8::1", "0.0.0.0/0", False),
        ("10.1.2.3", "::/0", False),
        # A listener for both kinds sees an IPv4 peer like this.
        ("::ffff:10.1.2.3", "10.1.2.0/24", True),
    ],
)
def test_an_address_opens_to_its_network(address: str, expression: str, matches: bool) -> None:
    assert check(one("ip", expression), Perm.READ, (), address) is matches


@given(st.binary(min_size=4, max_size=4), st.binary(min_size=4, max_size=4), st.integers(0, 32))
def test_a_network_is_what_shares_its_first_bits(peer: bytes, network: bytes, bits: int) -> None:
    def text(address: bytes) -> str:
        return ".".join(map(str, address))

    def first_bits(address: bytes) -> str:
        return "".join(f"{byte:08b}" for byte in address)[:bits]

    allowed = check(one("ip", f"{text(network)}/{bits}"), Perm.READ, (), text(peer))
    assert allowed == (first_bits(peer) == first_bits(network))


# -- addauth ---------------------------------------------------------------------------------


def test_a_digest_is_of_name_and_password_together() -> None:
    expected = base64.b64encode(hashlib.sha1(b"a:b").digest()).decode()
    assert digest_of(b"a:b") == f"a:{expected}" == "a:3OptnM09ILoVSfbZtd3mB0IViII="
    assert digest_of(b"zzz") == "zzz:QPo37ADHYcfbtuve5tSiYLki9fQ="
    assert digest_of(b"a:b:c").startswith("a:")


@pytest.mark.parametrize("auth", [b"a:b", b"no colon", b"", b":", b"\xff:x", "é:ü".encode()])
def test_addauth_with_a_digest_always_succeeds(auth: bytes) -> None:
    assert add_auth("digest", auth, HERE) == (Identity("digest", digest_of(auth)),)


def test_a_name_that_is_no_utf8_is_read_as_java_reads_it() -> None:
    assert digest_of(b"\xff:x") == digest_of("\ufffd:x".encode())


def test_addauth_ip_proves_the_address_whatever_was_sent() -> None:
    assert add_auth("ip", b"10.0.0.1", HERE) == (Identity("ip", HERE),)
    assert add_auth("ip", None, HERE) == (Identity("ip", HERE),)


@pytest.mark.parametrize(
    ("scheme", "auth"),
    [
        ("world", b"anyone"),
        ("auth", b""),
        ("super", b""),
        ("sasl", b"x"),
        ("x509", b""),
        ("foo", b"x"),
        ("", b""),
        ("digest", None),
    ],
)
def test_addauth_that_proves_nothing_fails(scheme: str, auth: bytes | None) -> None:
    with pytest.raises(ZkError) as refused:
        add_auth(scheme, auth, HERE)
    assert refused.value.code is Err.AUTH_FAILED


def test_the_super_digest_makes_the_super_user() -> None:
    super_digest = digest_of(b"super:pw")
    found = add_auth("digest", b"super:pw", HERE, super_digest=super_digest)
    assert found == (SUPER, Identity("digest", super_digest))
    assert SUPER not in add_auth("digest", b"super:other", HERE, super_digest=super_digest)
    assert SUPER not in add_auth("digest", b"super:pw", HERE)


def test_an_identity_is_kept_once() -> None:
    assert with_identities((ALICE,), (BOB, ALICE)) == (ALICE, BOB)
    assert identities((ALICE, Identity("ip", HERE)), HERE) == (Identity("ip", HERE), ALICE)


def test_a_user_name_gives_no_digest_away() -> None:
    assert [user_name(one) for one in (ALICE, SUPER, Identity("ip", HERE))] == ["alice", "", HERE]
