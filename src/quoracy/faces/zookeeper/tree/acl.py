"""Access control: ACLs as ZooKeeper's server keeps them, and the identities they are matched with.

An ACL is a tuple of entries; an operation is allowed when one entry grants its permission to one of the
caller's identities.  A caller always has the identity ("ip", its address); addauth brings others.  Four
schemes are known, as in a ZooKeeper without plug-ins: world (everybody), ip (an address or a network),
digest (name and password) and auth, which stands for the caller's own identities when an ACL is set.

Invariants
    * `check` and `fix_up` decide alike on every node of a cluster: they use only their arguments.
    * A password never stays: an identity carries the digest of it.
    * OPEN_ACL is one object.  `interned` maps every equal tuple to it, so that the common case is
      decided by comparing two pointers.
"""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from quoracy.faces.zookeeper.tree.paths import ZkError
from quoracy.wire.zookeeper.codes import Err
from quoracy.wire.zookeeper.requests import Acl

__all__ = [
    "OPEN_ACL",
    "READ_ONLY_ACL",
    "SUPER",
    "Identity",
    "add_auth",
    "check",
    "digest_of",
    "fix_up",
    "identities",
    "interned",
    "is_same",
    "user_name",
    "with_identities",
]

Acls: TypeAlias = tuple[Acl, ...]


class Identity(NamedTuple):
    """What a connection has proved about its peer."""

    scheme: str
    id: str


def _anyone(perms: int) -> Acls:
    # (A function, since a constant tuple of known length is taken apart when compiled, and made anew
    # wherever it is used; these are compared by identity.)
    return (Acl(perms, "world", "anyone"),)


OPEN_ACL: Final = _anyone(31)
READ_ONLY_ACL: Final = _anyone(1)
SUPER: Final = Identity("super", "")

# Distinct ACLs are few in practice.  At the bound the table starts again: equal ACLs set before and
# after are then two objects, which costs memory and nothing else.
_INTERNED_MAX: Final = 4096
_interned: dict[Acls, Acls] = {OPEN_ACL: OPEN_ACL, READ_ONLY_ACL: READ_ONLY_ACL}


def interned(acl: Acls) -> Acls:
    """The one tuple that stands for all that equal `acl`."""
    known = _interned.get(acl)
    if known is not None:
        return known
    if len(_interned) >= _INTERNED_MAX:
        _interned.clear()
        _interned.update({OPEN_ACL: OPEN_ACL, READ_ONLY_ACL: READ_ONLY_ACL})
    _interned[acl] = acl
    return acl


def check(
    acl: Acls, perm: int, ids: Sequence[Identity], address: str, *, skip_acl: bool = False
) -> bool:
    """Whether a caller with these identities, calling from `address`, may do what `perm` stands for.

    As ZooKeeperServer.checkACL: an empty ACL forbids nothing, and the super user may do everything.
    """
    if acl is OPEN_ACL or skip_acl or not acl:
        return True
    if SUPER in ids:
        return True
    wanted = int(perm)  # An IntFlag's own `&` costs more than all the rest.
    for entry in acl:
        if not entry.perms & wanted:
            continue
        scheme = entry.scheme
        if scheme == "world":
            if entry.id == "anyone":
                return True
        elif scheme == "ip":
            if _address_matches(address, entry.id):
                return True
        elif scheme == "digest":
            if any(one.scheme == "digest" and _same(one.id, entry.id) for one in ids):
                return True
        elif any(one.scheme == scheme and one.id == entry.id for one in ids):
            return True
    return False


def fix_up(acl: Acls, ids: Sequence[Identity]) -> Acls:
    """The ACL to store for the one a create or a setACL asks for (PrepRequestProcessor.fixupACL).

    Entries that occur twice are kept once and "auth" becomes the identities of the caller, in the order
    they were added.  Raises INVALID_ACL for an empty list, an unknown scheme, an id its scheme does not
    take, and for "auth" from a caller that has proved nothing.
    """
    if acl is OPEN_ACL or acl == OPEN_ACL:
        return OPEN_ACL
    fixed: list[Acl] = []
    for entry in dict.fromkeys(acl):
        if entry.scheme == "auth":
            own = [Acl(entry.perms, one.scheme, one.id) for one in ids if one.scheme == "digest"]
            if not own:
                raise ZkError(Err.INVALID_ACL)
            fixed += own
            continue
        if not _is_id_valid(entry.scheme, entry.id):
            raise ZkError(Err.INVALID_ACL)
        fixed.append(entry)
    if not fixed:
        raise ZkError(Err.INVALID_ACL)
    return interned(tuple(fixed))


def add_auth(
    scheme: str, auth: bytes | None, address: str, *, super_digest: str | None = None
) -> tuple[Identity, ...]:
    """The identities that an addauth proves.  AUTH_FAILED is an answer after which the connection ends.

    A digest always succeeds: it claims a name and a password together, and only the ACLs know whether
    that pair means anything.  With `super_digest` (name:digest) it may make the super user.
    """
    if scheme == "ip":
        return (Identity("ip", address),)
    if scheme != "digest" or auth is None:
        raise ZkError(Err.AUTH_FAILED)
    digest = digest_of(auth)
    own = Identity("digest", digest)
    if super_digest is not None and _same(digest, super_digest):
        return (SUPER, own)
    return (own,)


def with_identities(ids: tuple[Identity, ...], added: Iterable[Identity]) -> tuple[Identity, ...]:
    """`ids` and those `added` that were not among them."""
    return tuple(dict.fromkeys((*ids, *added)))


def identities(ids: Sequence[Identity], address: str) -> tuple[Identity, ...]:
    """All that a caller is known as, its address first: what whoAmI shows."""
    return tuple(dict.fromkeys((Identity("ip", address), *ids)))


def user_name(identity: Identity) -> str:
    """The name of an identity without what proves it."""
    return identity.id.split(":", 1)[0] if identity.scheme == "digest" else identity.id


def digest_of(name_and_password: bytes) -> str:
    """name:password to name:digest, as stored in ACLs (DigestAuthenticationProvider.generateDigest)."""
    import hashlib  # brings OpenSSL, which only a password needs

    text = name_and_password.decode("utf-8", "replace")
    name = text.split(":", 1)[0]
    digest = hashlib.sha1(text.encode("utf-8"), usedforsecurity=False).digest()
    return f"{name}:{base64.b64encode(digest).decode('ascii')}"


def is_same(one: bytes, other: bytes) -> bool:
    """Whether two secrets are equal; takes as long wherever they differ."""
    import hmac  # brings OpenSSL, as `secrets` does: 4 MB that most servers never need

    return hmac.compare_digest(one, other)


def _same(one: str, other: str) -> bool:
    return is_same(one.encode("utf-8", "replace"), other.encode("utf-8", "replace"))


def _is_id_valid(scheme: str, id: str) -> bool:
    if scheme == "world":
        return id == "anyone"
    if scheme == "digest":
        # Java's split(":") drops empty strings at the end, so "a:b:" has two parts and "a:" has one.
        return id.rstrip(":").count(":") == 1
    if scheme == "ip":
        return _network(id) is not None
    return False


@lru_cache(maxsize=4096)
def _address_matches(address: str, expression: str) -> bool:
    network = _network(expression)
    if network is None:
        return False
    value, size, bits = network
    peer = _address(address)
    if peer is None or peer[1] != size:
        return False
    return (peer[0] ^ value) >> (size - bits) == 0


def _network(expression: str) -> tuple[int, int, int] | None:
    """Value, size in bits and length of the prefix of "address" or "address/bits"."""
    text, slash, suffix = expression.partition("/")
    address = _address(text)
    if address is None:
        return None
    value, size = address
    bits = _decimal(suffix) if slash else size
    if bits is None or not 0 <= bits <= size:
        return None
    return value, size, bits


def _address(text: str) -> tuple[int, int] | None:
    """Value and size in bits.  An IPv4 address that came over an IPv6 socket is an IPv4 address."""
    if ":" in text:
        try:
            six = ipaddress.IPv6Address(text)
        except ValueError:
            return None
        four = six.ipv4_mapped
        return (int(six), 128) if four is None else (int(four), 32)
    parts = [_decimal(part) for part in text.split(".")]
    if len(parts) != 4:
        return None
    value = 0
    for part in parts:
        if part is None or not 0 <= part <= 255:
            return None
        value = value << 8 | part
    return value, 32


def _decimal(text: str) -> int | None:
    """A whole number as Java's Integer.parseInt reads it: a sign and leading zeros are fine."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 20:
        return None
    return int(text)
