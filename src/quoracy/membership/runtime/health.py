"""Who is alive, and nothing else: what a registry of services needs to know of a cluster.

It reads; whoever holds it can change nothing.  A suspect counts as alive: a suspicion is somebody's
missing answer, which the member may yet explain, and taking a service away for it would make every lost
packet an outage.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import assert_never

import msgspec

from quoracy.membership.model import Conflict, Member
from quoracy.membership.runtime.events import Changed, EventStream, Snapshot

__all__ = ["Health", "HealthChange"]


class HealthChange(msgspec.Struct, frozen=True):
    """A member came (back) to life, or is gone: dead, left, or forgotten."""

    name: str
    is_alive: bool


class Health:
    """A view of a cluster by name.

    >>> from quoracy.membership.model import Member
    >>> health = Health({"a": Member("a", "10.0.0.1:7946", 1)}, lambda: EventStream(lambda: ()))
    >>> health.is_alive("a"), health.is_alive("b")
    (True, False)
    """

    def __init__(self, members: Mapping[str, Member], listen: Callable[[], EventStream]) -> None:
        self._members, self._listen = members, listen

    def is_alive(self, name: str) -> bool:
        """Whether the member of this name is there; False for one that nobody knows."""
        member = self._members.get(name)
        return member is not None and member.is_present

    async def changes(self) -> AsyncGenerator[HealthChange]:
        """Everyone who is alive first, then every change.  Ends when the cluster is left.

        No change is lost to a slow reader, but a member that went and came back while it was not
        reading may be told as nothing at all.
        """
        alive: set[str] = set()
        async with aclosing(self._listen()) as events:
            async for event in events:
                match event:
                    case Snapshot(members):
                        present = {member.name for member in members}
                    case Changed(_, member):
                        present = alive | {member.name}
                        if not member.is_present:
                            present = alive - {member.name}
                    case Conflict():
                        continue
                    case _:
                        assert_never(event)
                for name in sorted(alive ^ present):
                    yield HealthChange(name, name in present)
                alive = present
