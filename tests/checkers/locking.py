"""Locks with fencing tokens: tokens grow, and the resource they guard never mixes two holders.

A holder that is paused past its session still believes it holds the lock; nothing a client sees can
prevent that.  So mutual exclusion is judged where it counts: at a resource that takes a request only if
its token is at least the largest it has seen.  Holders read the resource, then write what they read
plus their own change; both requests carry the token, so a reader shuts out older writers.

Rules for whoever records
    * A grant is recorded before its holder first touches the resource.
    * The resource itself records the writes, in the order it handled them, also those it refused.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tests.checkers.history import Verdict

__all__ = ["Grant", "GuardedWrite", "check_locking"]


@dataclass(frozen=True, slots=True)
class Grant:
    """A client holds a lock: it asked at one time and knew at the other."""

    lock: str
    client: int
    token: int
    asked: float
    granted: float


@dataclass(frozen=True, slots=True)
class GuardedWrite:
    """One write that reached the resource guarded by a lock."""

    lock: str
    client: int
    token: int
    saw: bytes | None  # what the holder had read, with the same token
    wrote: bytes
    accepted: bool


def check_locking(
    grants: Iterable[Grant], writes: Iterable[GuardedWrite], *, initial: bytes | None = None
) -> Verdict:
    """Judge all locks; `initial` is what every resource held before its first write."""
    granted: dict[str, list[Grant]] = defaultdict(list)
    for grant in grants:
        granted[grant.lock].append(grant)
    written: dict[str, list[GuardedWrite]] = defaultdict(list)
    for write in writes:
        written[write.lock].append(write)
    problems = []
    for lock in sorted(granted.keys() | written.keys()):
        found = [*_tokens(granted[lock]), *_resource(granted[lock], written[lock], initial)]
        problems += [f"{lock}: {problem}" for problem in found]
    checked = sum(map(len, granted.values())) + sum(map(len, written.values()))
    return Verdict(not problems, checked, "\n".join(problems))


def _tokens(grants: list[Grant]) -> Iterator[str]:
    """No token twice; who asks after another was granted gets a larger one."""
    first: dict[int, Grant] = {}
    for grant in grants:
        other = first.setdefault(grant.token, grant)
        if other is not grant:
            yield f"token {grant.token} was given to client {other.client} and to client {grant.client}"
    by_granted = sorted(grants, key=lambda grant: grant.granted)
    times = [grant.granted for grant in by_granted]
    largest: list[Grant] = []  # the largest token of all granted so far
    for grant in by_granted:
        largest.append(grant if not largest or grant.token > largest[-1].token else largest[-1])
    for grant in grants:
        before = bisect_left(times, grant.asked)
        if before and largest[before - 1].token > grant.token:
            earlier = largest[before - 1]
            yield (
                f"the token went back: client {grant.client} asked at {grant.asked:.6f} "
                f"and got {grant.token}, but client {earlier.client} had {earlier.token} "
                f"at {earlier.granted:.6f}"
            )


def _resource(grants: list[Grant], writes: list[GuardedWrite], initial: bytes | None) -> Iterator[str]:
    """Accepted writes follow one another, each built on the one before, each by a rightful holder."""
    holders = {grant.token: grant.client for grant in grants}
    newest = max(holders, default=0)
    largest, holds = 0, initial
    for number, write in enumerate(writes, start=1):
        change = f"{write.saw!r} to {write.wrote!r}"
        what = f"write {number} (client {write.client}, token {write.token}, {change})"
        holder = holders.get(write.token)
        if holder is None:
            yield f"{what}: nobody was granted that token"
        elif holder != write.client:
            yield f"{what}: that token was granted to client {holder}"
        if not write.accepted:
            if write.token >= newest:
                yield f"{what}: refused, though no larger token was ever granted"
            continue
        if write.token < largest:
            yield f"{what}: accepted from a former holder, after token {largest}"
        if write.saw != holds:
            yield f"{what}: an update is lost, the resource held {holds!r}"
        largest, holds = max(largest, write.token), write.wrote
