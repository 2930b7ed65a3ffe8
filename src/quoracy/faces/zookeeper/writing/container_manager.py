"""Containers and TTL znodes that have served their time are removed, some time after.

A container goes when it has had children and has none; one that never had any goes when it is older
than `container_max_never_used`, if that is set.  A TTL znode goes when it has no children and its data
was not written for its TTL.  Both are looked for every `container_check_interval`, and at most
`container_max_per_minute` are removed in a minute, as in ZooKeeper.

What is found is only asked for: the write path looks again, and refuses if a child came meanwhile.
Where several nodes serve one tree each looks, and the first wins.
"""

from __future__ import annotations

import asyncio
import logging

from quoracy.clock import Clock
from quoracy.faces.zookeeper.settings import ZooKeeperSettings
from quoracy.faces.zookeeper.tree.acl import Identity
from quoracy.faces.zookeeper.tree.layout import NodeKind
from quoracy.faces.zookeeper.tree.replica import Replica
from quoracy.faces.zookeeper.tree.znodes import Node
from quoracy.faces.zookeeper.writing.in_flight import Outcome
from quoracy.faces.zookeeper.writing.proposals import DeleteContainer
from quoracy.wire.zookeeper.codes import Err

__all__ = ["Reaper", "is_due"]

_log = logging.getLogger(__name__)


class _Server:
    """The caller of what the server does for itself: it has no session."""

    session_id = 0
    ids: tuple[Identity, ...] = ()
    address = ""


class Reaper:
    """Looks for what is due, for as long as it runs."""

    def __init__(self, replica: Replica, settings: ZooKeeperSettings, clock: Clock) -> None:
        self._replica = replica
        self._settings = settings
        self._clock = clock

    async def run(self) -> None:
        while True:
            await self._clock.sleep(self._settings.container_check_interval / 1000)
            await self.sweep()

    async def sweep(self) -> None:
        """Remove everything that is due now."""
        pause_s = 60 / self._settings.container_max_per_minute
        now_ms = int(self._clock.wall() * 1000)
        due = [
            path
            for path, node in self._replica.tree.special.items()
            if is_due(node, self._settings, now_ms=now_ms)
        ]
        for number, path in enumerate(due):
            if number:
                await self._clock.sleep(pause_s)
            outcome = await self._remove(path)
            if outcome is None:
                # The store may be away; then it would be the same with all of them.
                _log.warning("removing %s: not known whether it happened; looked at again later", path)
                return
            if outcome.err not in (Err.OK, Err.NO_NODE, Err.NOT_EMPTY, Err.BAD_VERSION):
                _log.warning("removing %s was refused: %s", path, Err(outcome.err).name)

    async def _remove(self, path: bytes) -> Outcome | None:
        answer: asyncio.Future[Outcome | None] = asyncio.get_running_loop().create_future()

        def on_outcome(outcome: Outcome | None) -> None:
            if not answer.done():
                answer.set_result(outcome)

        self._replica.submit(DeleteContainer(path), _Server(), on_outcome)
        return await answer


def is_due(node: Node, settings: ZooKeeperSettings, *, now_ms: int) -> bool:
    """Whether a container or TTL znode has served its time."""
    if node.children_count:
        return False
    if node.kind == NodeKind.TTL:
        return now_ms - node.mtime > node.ttl_ms
    if node.kind != NodeKind.CONTAINER:
        return False
    if node.creates:
        return True
    unused_max = settings.container_max_never_used
    return bool(unused_max) and now_ms - node.mtime > unused_max
