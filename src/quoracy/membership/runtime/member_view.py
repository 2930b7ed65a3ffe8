"""Members as users see them, with readable metadata.

Metadata is sent as at most 512 bytes of msgpack: a map of text to text, or bytes with a meaning for the
program only.  Anything else that another implementation sends is kept as bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeAlias

import msgspec

from quoracy.errors import InvalidRequest
from quoracy.membership.codec import UNREADABLE
from quoracy.membership.machine import Address
from quoracy.membership.model import Member, MemberState
from quoracy.membership.settings import META_BYTES_MAX

__all__ = ["MemberView", "Meta", "Views", "decode_meta", "encode_meta"]

Meta: TypeAlias = Mapping[str, str] | bytes

_DECODER = msgspec.msgpack.Decoder(dict[str, str] | bytes)
_NO_META: Mapping[str, str] = MappingProxyType({})


class MemberView(msgspec.Struct, frozen=True, kw_only=True):
    """One member as it is known here.

    state: ALIVE, SUSPECT (a member got no answer from it; it may still refute that), DEAD or LEFT.
    incarnation: grows each time the member refutes a suspicion, or changes its metadata.
    meta: its metadata as text; empty if it gave bytes.
    meta_bytes: its metadata as bytes; empty if it gave text.

    >>> from quoracy.membership.model import Member
    >>> view = MemberView.of(Member("web-1", "10.0.0.7:7946", 1, meta=encode_meta({"zone": "a"})))
    >>> view.name, view.meta["zone"], view.is_present
    ('web-1', 'a', True)
    """

    name: str
    address: Address
    state: MemberState
    incarnation: int
    meta: Mapping[str, str]
    meta_bytes: bytes

    @property
    def is_present(self) -> bool:
        """Alive, or at least not known to be dead."""
        return self.state <= MemberState.SUSPECT

    @classmethod
    def of(cls, member: Member) -> MemberView:
        """The view of a member of the protocol."""
        meta, meta_bytes = decode_meta(member.meta)
        return cls(
            name=member.name,
            address=member.address,
            state=member.state,
            incarnation=member.incarnation,
            meta=meta,
            meta_bytes=meta_bytes,
        )


class Views:
    """A cache of views: a member that did not change has the same view as before.

    It holds one view for each name until `forget`; the protocol bounds how many names there are.
    """

    def __init__(self) -> None:
        self._made: dict[str, tuple[Member, MemberView]] = {}

    def of(self, member: Member) -> MemberView:
        found = self._made.get(member.name)
        if found is not None and found[0] is member:
            return found[1]
        view = MemberView.of(member)
        self._made[member.name] = (member, view)
        return view

    def forget(self, name: str) -> None:
        self._made.pop(name, None)


def encode_meta(meta: Meta | None) -> bytes:
    """Metadata as it is sent.  Raises `InvalidRequest` for more than 512 bytes.

    >>> decode_meta(encode_meta({"zone": "a", "port": "8080"}))[0]["port"]
    '8080'
    """
    if not meta:
        return b""
    if not isinstance(meta, bytes):
        wrong = [pair for pair in meta.items() if not all(isinstance(each, str) for each in pair)]
        if wrong:
            raise InvalidRequest(
                f"metadata is text for text, and {wrong[0][0]!r}: {wrong[0][1]!r} is not. "
                "Write it as text, or encode all of it yourself and give bytes."
            )
        meta = dict(meta)
    encoded = msgspec.msgpack.encode(meta)
    if len(encoded) > META_BYTES_MAX:
        raise InvalidRequest(
            f"the metadata takes {len(encoded):,} bytes; the limit is {META_BYTES_MAX}, since it "
            "travels in one packet. Say less, or put the rest into `cluster.state`."
        )
    return encoded


def decode_meta(encoded: bytes) -> tuple[Mapping[str, str], bytes]:
    """Metadata as text and as bytes; at least one of them is empty."""
    if not encoded:
        return _NO_META, b""
    try:
        meta = _DECODER.decode(encoded)
    except UNREADABLE:
        return _NO_META, encoded  # not made by this library: kept as it came
    if isinstance(meta, bytes):
        return _NO_META, meta
    return MappingProxyType(meta), b""
