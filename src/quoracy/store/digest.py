"""The state hash: one digest for one content, whatever engine holds it.

It covers every key that exists at a revision, in key order, with its value, its revisions, its
version and its lease; nothing of history, so two stores compacted differently agree.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from quoracy.store.model import KeyValue

__all__ = ["Digest"]

_encode = msgspec.msgpack.Encoder().encode


class Digest:
    """Feed it the keys of one revision in order; pages of any size give the same answer."""

    __slots__ = ("_hash",)

    def __init__(self) -> None:
        import hashlib  # brings OpenSSL: 4 MB that only who asks for a digest needs

        self._hash = hashlib.blake2b(digest_size=16)

    def update(self, kvs: Iterable[KeyValue]) -> None:
        add = self._hash.update
        for kv in kvs:
            # msgpack writes lengths before contents, so no two sequences of keys look alike.
            add(_encode((kv.key, kv.value, kv.create_revision, kv.mod_revision, kv.version, kv.lease)))

    def hexdigest(self) -> str:
        return self._hash.hexdigest()
