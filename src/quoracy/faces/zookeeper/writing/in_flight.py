"""What is in flight: the znodes as they will be, and whose write a revision is.

    leave -> pending: those who prepare a write now find what this one will leave behind
    landed, withdrawn -> it is in the tree, or will never be

In a store in this process a write is judged when it is taken: it lands, unless the disk fails.  In any
other it may come to nothing.  Then so will all that was prepared on what it would have left, and so on:
all of that is withdrawn at once, or those who come meanwhile would be prepared on it too, and fail for
ever.  What was in flight before it still counts.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable

from quoracy.faces.zookeeper.tree.znodes import Node, PlainChange
from quoracy.faces.zookeeper.writing.drafts import UNKNOWN, Flight, InFlight, made_at
from quoracy.faces.zookeeper.writing.session_queue import NOTHING_LEFT, Write

__all__ = ["Flights"]


class Flights:
    """All that is in flight, of one replica."""

    def __init__(self) -> None:
        self.pending: dict[bytes, InFlight] = {}
        # Those that a store elsewhere has not answered or not shown: in order, and by their first key.
        self._sent: dict[Write, None] = {}
        self._by_key: dict[bytes, deque[Write]] = {}

    def leave(self, write: Write, after: dict[bytes, Node], zxid: int) -> None:
        """Those who come now find the znodes as this write will leave them."""
        write.left = after
        pending = self.pending
        for path, node in after.items():
            made_at(node, zxid)
            pending[path] = (node, write)

    def leave_plain(self, write: Write, change: PlainChange, zxid: int) -> None:
        """`leave` for one that took the shortcut: its znodes need no table."""
        write.plain = change
        node, parent = change.node, change.parent
        made_at(node, zxid)
        self.pending[node.path] = (node, write)
        if parent is not None:
            made_at(parent, zxid)
            self.pending[parent.path] = (parent, write)

    def send(
        self, write: Write, first_key: bytes, after: dict[bytes, Node], bases: Iterable[Flight]
    ) -> None:
        """It is on its way to a store elsewhere, prepared on what the bases leave."""
        for base in bases:
            assert isinstance(base, Write)
            if base.followers is None:
                base.followers = []
            base.followers.append(write)
        write.first_key = first_key
        self._by_key.setdefault(first_key, deque()).append(write)
        self._sent[write] = None
        self.leave(write, after, UNKNOWN)

    def landed(self, write: Write) -> None:
        """What it left in flight is in the tree now, or will never be."""
        plain = write.plain
        if plain is not None:
            self._landed(plain.node.path, write)
            if plain.parent is not None:
                self._landed(plain.parent.path, write)
            write.plain = None
            return
        for path in write.left:
            self._landed(path, write)
        write.left = NOTHING_LEFT
        if write.first_key:
            del self._sent[write]
            same = self._by_key[write.first_key]
            same.remove(write)
            if not same:
                del self._by_key[write.first_key]
            write.first_key = b""

    def _landed(self, path: bytes, write: Write) -> None:
        state = self.pending.get(path)
        if state is not None and state[1] is write:
            del self.pending[path]

    def withdraw(self, write: Write) -> None:
        """It came to nothing, and so will whatever was prepared on it: nobody else should be."""
        pending = self.pending
        left: set[bytes] = set()
        doomed = [write]
        while doomed:
            one = doomed.pop()
            left.update(one.left)
            one.left = NOTHING_LEFT
            if one.plain is not None:
                left.update(one.plain.paths)
                one.plain = None
            if one.followers is not None:
                doomed += one.followers
                one.followers = None
        for path in left:
            pending.pop(path, None)
        for other in self._sent:
            for path in left & other.left.keys():
                pending[path] = (other.left[path], other)

    def child_lost(self, path: bytes) -> None:
        """A child of this znode went with its lease: what is in flight was prepared before that."""
        nodes = [write.left[path] for write in self._sent if path in write.left]
        state = self.pending.get(path)
        if state is not None and not nodes:
            nodes.append(state[0])
        for node in nodes:
            node.children_count -= 1

    def started_anew(self) -> None:
        """The tree was read anew: what is in flight was prepared on another, and is no guide now."""
        self.pending.clear()
        for write in self._sent:
            write.left = NOTHING_LEFT

    def clear(self) -> None:
        self.pending.clear()
        self._sent.clear()
        self._by_key.clear()

    # -- whose a revision is -----------------------------------------------------------------

    def may_be_ours(self, first_key: bytes) -> bool:
        return first_key in self._by_key

    def unknown(self, first_key: bytes, revision: int) -> asyncio.Future[None] | None:
        """What to wait for, and then ask again; none if it is known who made the revision.

        That is, which write of ours, if any, made the revision that begins so.
        """
        for write in self._by_key.get(first_key, ()):
            if write.revision == revision:
                return None
            if not write.is_known:
                if write.known is None:
                    write.known = asyncio.get_running_loop().create_future()
                return write.known
        return None

    def settled(self, write: Write) -> None:
        """The store has answered it."""
        write.is_known = True
        if write.known is not None and not write.known.done():
            write.known.set_result(None)
