"""How a member without data begins: in a new cell, or in place of one that lost its data.  Pure.

An empty data directory means one of two things.  In a cell that is new, every
member has one, and etcd begins with `--initial-cluster-state new`.  In a cell that exists, it means
that a member lost its disk; if it began as new, it would vote without remembering its earlier votes,
and acknowledged writes could be lost.  So the lost member is removed from the cluster, which
needs a quorum of the others, and a member with a new id is added in its place.

The input is what each of the others said (`View`) and, if there is a quorum, the list of members that
it agrees on.

Invariants
    * It begins as new only if the quorum says that this member never ran, or, without a quorum, if
      every other member answered and none of them has seen it run.
    * A member is removed only on the word of a quorum.
    * It continues where it was interrupted: after a crash between removing and adding,
      the member is added; after one between adding and starting, it is started.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from quoracy.server.cell.config import CellConfig

__all__ = [
    "Add",
    "Begin",
    "Join",
    "KnownMember",
    "Replace",
    "Step",
    "View",
    "Wait",
    "initial_cluster",
    "next_step",
]


@dataclass(frozen=True, slots=True)
class KnownMember:
    """A member as the cluster knows it; one that never ran has no client URLs.

    A member that was added while the cluster ran has no name either until it runs.
    """

    id: int
    name: str
    peer_urls: tuple[str, ...]
    client_urls: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class View:
    """The answer of another member: it has no data either, or the members that its etcd knows."""

    members: tuple[KnownMember, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not self.members


@dataclass(frozen=True, slots=True)
class Begin:
    """Start as one of the first members of a new cell."""


@dataclass(frozen=True, slots=True)
class Join:
    """Start as a member that was added to the cluster; `initial_cluster` is name -> peer URL."""

    initial_cluster: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Add:
    """Add us to the cluster; then look again."""


@dataclass(frozen=True, slots=True)
class Replace:
    """Remove our former member; then look again."""

    lost: KnownMember


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait; `why` says for what."""

    why: str


Step: TypeAlias = Begin | Join | Add | Replace | Wait


def next_step(
    config: CellConfig, heard: Mapping[str, View], agreed: Sequence[KnownMember] | None
) -> Step:
    """What to do with an empty data directory.

    heard: name -> what that other member said, now or earlier in this wait.
    agreed: the members that a quorum agrees on; None while there is no quorum.
    """
    if agreed is not None:
        return _by_quorum(config, agreed)
    older = [name for name, view in heard.items() if not _may_be_new(config, view)]
    if older:
        return Wait(
            f"the cell exists, as {', '.join(sorted(older))} knows, and {config.node} has no data; it "
            "can be replaced only when most of the other members are up and agree"
        )
    missing = [member for member in config.others if member.name not in heard]
    if missing:
        names = ", ".join(f"{member.name} ({member.peer})" for member in missing)
        return Wait(
            f"nothing is heard of {names}; a new cell begins when all its members are there, so that "
            "one which lost its data is never taken for a new one"
        )
    return Begin()


def initial_cluster(config: CellConfig, members: Sequence[KnownMember]) -> dict[str, str]:
    """Name -> peer URL.  etcd wants the members that exist, neither more nor fewer."""
    names = {config.peer_url(member): member.name for member in config.members}
    cluster = {}
    for member in members:
        url = member.peer_urls[0]
        name = member.name or names.get(url) or f"member-{member.id:x}"
        cluster[name] = url
    return cluster


def _by_quorum(config: CellConfig, agreed: Sequence[KnownMember]) -> Step:
    own = _own(config, agreed)
    if own is None:
        return Add()
    if _is_unstarted(own):
        return Join(initial_cluster(config, agreed))
    return Replace(own) if _has_run(own) else Begin()


def _may_be_new(config: CellConfig, view: View) -> bool:
    """Whether it may be as new as we are: empty, or its etcd waits for our first start."""
    own = _own(config, view.members)
    return view.is_empty or (own is not None and bool(own.name) and not _has_run(own))


def _own(config: CellConfig, members: Sequence[KnownMember]) -> KnownMember | None:
    """The member we are or were: the one at our address, else the one with our name."""
    url = config.peer_url(config.own)
    at_address = [member for member in members if url in member.peer_urls]
    named = [member for member in members if member.name == config.node]
    return next(iter([*at_address, *named]), None)


def _has_run(member: KnownMember | None) -> bool:
    # By the same sign as etcd (isMemberBootstrapped in its server/etcdserver/cluster_util.go); but that
    # looks for the id a first start has, and so misses a member that was replaced before.
    return member is not None and bool(member.client_urls)


def _is_unstarted(member: KnownMember | None) -> bool:
    return member is not None and not member.name and not member.client_urls
