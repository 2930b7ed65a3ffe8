"""The three requests that busy clients write with.

Apart from `records`, and compiled: a struct takes 180 instructions to tell an attribute to compiled
code, and more to tell what it is; a class that was compiled as well, two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from quoracy.native import mypyc_attr

if TYPE_CHECKING:
    from quoracy.wire.zookeeper.records import Acl

__all__ = ["Create", "Delete", "PlainWrite", "SetData"]


@mypyc_attr(acyclic=True)
class PlainWrite:
    """What they have in common: equal if they ask for the same."""

    __slots__ = ()

    def fields(self) -> tuple[object, ...]:
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PlainWrite) or type(self) is not type(other):
            return NotImplemented
        return self.fields() == other.fields()

    def __hash__(self) -> int:
        return hash(self.fields())

    def __repr__(self) -> str:
        return f"{type(self).__name__}{self.fields()!r}"


@mypyc_attr(acyclic=True)
class Create(PlainWrite):
    """create, create2, createContainer or createTTL, which `op` tells apart."""

    __slots__ = ("acl", "data", "flags", "op", "path", "ttl_ms")

    def __init__(
        self,
        op: int,
        path: bytes,
        data: bytes | None,
        acl: tuple[Acl, ...],
        flags: int,
        ttl_ms: int = -1,
    ) -> None:
        self.op, self.path, self.data, self.acl = op, path, data, acl
        self.flags, self.ttl_ms = flags, ttl_ms

    def fields(self) -> tuple[object, ...]:
        return self.op, self.path, self.data, self.acl, self.flags, self.ttl_ms


@mypyc_attr(acyclic=True)
class Delete(PlainWrite):
    __slots__ = ("path", "version")

    def __init__(self, path: bytes, version: int) -> None:
        self.path, self.version = path, version

    def fields(self) -> tuple[object, ...]:
        return self.path, self.version


@mypyc_attr(acyclic=True)
class SetData(PlainWrite):
    __slots__ = ("data", "path", "version")

    def __init__(self, path: bytes, data: bytes | None, version: int) -> None:
        self.path, self.data, self.version = path, data, version

    def fields(self) -> tuple[object, ...]:
        return self.path, self.data, self.version
