"""What a server said, taken apart: what must be equal, and what it chose for itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby

from tests.differential.zk_connection import Closed, Connected, EventCame, Item, Replied
from tests.differential.zk_requests import Reading, Shape, read_event, read_reply

__all__ = ["Seen", "seen"]


class Seen:
    """One item that came, taken apart."""

    def __init__(self, item: Item, owner: Callable[[int], str]) -> None:
        self.item = item
        self.reading = Reading()
        self.zxid: int | None = None
        match item:
            case Connected():
                password = item.password
                self.shape: Shape = (
                    "connected",
                    item.protocol_version,
                    item.timeout_ms,
                    owner(item.session_id),
                    None if password is None else (len(password), password != bytes(len(password))),
                    item.read_only,
                    item.rest,
                )
            case Replied():
                op = 0 if item.request is None else item.request.op
                self.reading = read_reply(op, item.err, item.body, owner)
                name = "nobody asked" if item.request is None else item.request.name
                self.zxid = item.zxid
                self.shape = (name, item.xid, _spoken(item.zxid), item.err, self.reading.shape)
            case EventCame():
                self.shape = ("event", _spoken(item.zxid), item.err, read_event(item.body))
            case Closed():
                self.shape = ("closed",)

    @property
    def is_change(self) -> bool:
        item = self.item
        return (
            isinstance(item, Replied)
            and item.err == 0
            and item.request is not None
            and item.request.changes_the_tree
            and not _has_error_result(self.reading.shape)
        )

    @property
    def path(self) -> str:
        return str(self.shape[3][2]) if isinstance(self.item, EventCame) else ""


def seen(items: Iterable[Item], owner: Callable[[int], str], *, any_order: bool) -> list[Seen]:
    """What came, in order.

    Events that one change caused for several nodes come in any order if the end of a session caused
    them, because ZooKeeper keeps the ephemerals of a session in a hash set: then those of one node
    stay in order, and nodes are put in the order of their paths.
    """
    all_seen = [Seen(item, owner) for item in items]
    if not any_order:
        return all_seen
    ordered: list[Seen] = []
    for is_event, run in groupby(all_seen, key=lambda one: isinstance(one.item, EventCame)):
        together = list(run)
        ordered += sorted(together, key=lambda one: one.path) if is_event else together
    return ordered


def _spoken(zxid: int) -> int | str:
    return zxid if zxid <= 0 else "a zxid"


def _has_error_result(shape: Shape) -> bool:
    return isinstance(shape, tuple) and any(
        isinstance(part, tuple) and part and part[0] == "error" for part in shape
    )
