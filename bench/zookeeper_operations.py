"""What a load does: the requests of one connection, the nodes they need, and how to be rid of them."""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bench.zookeeper_frames import (
    EPHEMERAL,
    NODE_EXISTS,
    SEQUENTIAL,
    STAT_BYTES,
    Op,
    Session,
    create,
    delete,
    get_data,
    multi_delete,
    path_only,
    set_data,
)

__all__ = ["OPERATIONS", "Exchange", "Operation"]

_ROOT = b"/bench"
_DIGITS = 10  # of a sequential node's number
_DELETES_PER_MULTI = 50  # a store may take no more than 128 operations at once; a delete is two
_MULTIS_AT_ONCE = 16
_PING_XID = -2


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request, and how many bytes its reply has after the header; no `xid` means any that is free."""

    op: Op
    body: bytes
    reply_body_bytes: int
    xid: int = 0


class Operation(ABC):
    """One kind of request, on nodes of so many bytes; each connection has a node of its own."""

    def __init__(self, size: int) -> None:
        self._data = b"v" * size

    @abstractmethod
    def exchanges(self, connection: int, in_flight: int) -> Sequence[Exchange]:
        """One cycle of what a connection asks; the next request goes out for each reply."""

    def prepare(self, session: Session, *, connections: int) -> None:
        """Make what the requests need."""
        ready = frozenset({NODE_EXISTS})
        session.calls([(Op.CREATE, create(_ROOT))], expected=ready)
        nodes = [_node(number) for number in range(connections)]
        session.calls([(Op.CREATE, create(node)) for node in nodes], expected=ready)
        session.calls([(Op.SET_DATA, set_data(node, self._data)) for node in nodes])

    def clear(self, session: Session, *, answered_count: int) -> None:
        """Remove what the load made; the nodes of `prepare` stay, for the next load."""
        del session, answered_count  # most make nothing


class GetData(Operation):
    def exchanges(self, connection: int, in_flight: int) -> Sequence[Exchange]:
        del in_flight
        reply_bytes = 4 + len(self._data) + STAT_BYTES
        return [Exchange(Op.GET_DATA, get_data(_node(connection)), reply_bytes)]


class Exists(Operation):
    def exchanges(self, connection: int, in_flight: int) -> Sequence[Exchange]:
        del in_flight
        return [Exchange(Op.EXISTS, path_only(_node(connection)), STAT_BYTES)]


class Ping(Operation):
    def exchanges(self, connection: int, in_flight: int) -> Sequence[Exchange]:
        del connection, in_flight
        return [Exchange(Op.PING, b"", 0, xid=_PING_XID)]


class SetData(Operation):
    def exchanges(self, connection: int, in_flight: int) -> Sequence[Exchange]:
        del in_flight
        return [Exchange(Op.SET_DATA, set_data(_node(connection), self._data), STAT_BYTES)]


class CreateSequential(Operation):
    """All connections below one parent, a new one for each load, as in a queue."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self._parent = b""

    def prepare(self, session: Session, *, connections: int) -> None:
        super().prepare(session, connections=connections)
        self._parent = b"%b/%b" % (_ROOT, secrets.token_hex(8).encode())
        session.calls([(Op.CREATE, create(self._parent))])

    def exchanges(self, connection: int, in_flight: int) -> Sequence[Exchange]:
        del connection, in_flight
        path = self._parent + b"/n"
        body = create(path, self._data, flags=SEQUENTIAL)
        return [Exchange(Op.CREATE, body, 4 + len(path) + _DIGITS)]

    def clear(self, session: Session, *, answered_count: int) -> None:
        # Every create succeeded, so the numbers are without a gap.
        paths = [b"%b/n%0*d" % (self._parent, _DIGITS, number) for number in range(answered_count)]
        step = _DELETES_PER_MULTI
        multis = [(Op.MULTI, multi_delete(paths[at : at + step])) for at in range(0, len(paths), step)]
        for at in range(0, len(multis), _MULTIS_AT_ONCE):
            session.calls(multis[at : at + _MULTIS_AT_ONCE])
        session.calls([(Op.DELETE, delete(self._parent))])


class Ephemeral(Operation):
    """Create and delete in turn, an ephemeral node for each request in flight; each of both counts."""

    def exchanges(self, connection: int, in_flight: int) -> Sequence[Exchange]:
        nodes = [b"%b/e%04d" % (_node(connection), slot) for slot in range(in_flight)]
        return [
            *(
                Exchange(Op.CREATE, create(node, self._data, flags=EPHEMERAL), 4 + len(node))
                for node in nodes
            ),
            *(Exchange(Op.DELETE, delete(node), 0) for node in nodes),
        ]


OPERATIONS: Mapping[str, Callable[[int], Operation]] = {
    "getData": GetData,
    "exists": Exists,
    "ping": Ping,
    "setData": SetData,
    "createSequential": CreateSequential,
    "ephemeral": Ephemeral,
}


def _node(connection: int) -> bytes:
    return b"%b/%06d" % (_ROOT, connection)
