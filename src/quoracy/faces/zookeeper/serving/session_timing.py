"""How long the lease of a session is, how often it is renewed, and how long answers may rest on that.

A lease of a store is renewed when its client gives a sign of life, but not at each: the lease is longer
than the timeout by as much as a sign of life may go unreported.  So

    lease = timeout + renew                               renewed at most once every `renew`

and a session never ends early: its last sign of life h came less than `renew` after the one that was
passed on, at r, or was passed on itself; the lease ends at r + timeout + renew or later, which is h +
timeout or later.  It ends at most `renew` late, plus what the store's own clockwork needs.

A store on a cluster can be out of reach without this node knowing, while the lease runs out.  So there
an answer must not promise more than the lease has.  Every answer, that to a ping too, makes the client
believe in its session for two thirds of the timeout more (then it takes the connection for lost: Java,
C and kazoo alike).  A renewal that was begun at b, and confirmed, makes the lease last until b +
timeout + renew at least.  So answers may go out until

    b + timeout / 3 + renew                               (`answers_s` after b)

Past that, requests wait until a newer renewal is confirmed; and a client that has waited until b +
timeout is hung up on, since the session may be over.  A client that is idle pings every third of its
timeout, so as long as the cluster answers, no client ever waits.

On a cluster renewals are rare and leases are whole seconds, as etcd's are: for a timeout of whole
seconds once a second, however busy the client.  A store's least time to live may make one longer still.
"""

from __future__ import annotations

import math
from typing import Final, Protocol

__all__ = ["CLUSTER", "NEAR", "RENEW_S", "Rhythm"]

# A sign of life is passed on to the store unless one was so short a time ago; of a short timeout, at
# most an eighth.
RENEW_S: Final = 0.5
# On a cluster the least time between two renewals; the most is a second more.
_APART_S: Final = 0.25


class Rhythm(Protocol):
    """All for a session with a timeout of `timeout_ms`."""

    def renew_s(self, timeout_ms: int) -> float:
        """The least time between two renewals."""
        ...

    def ttl_s(self, timeout_ms: int) -> float:
        """The time to live of its lease: so long that it cannot end early."""
        ...

    def timeout_ms_of(self, ttl_s: float) -> int:
        """The longest timeout a lease is long enough for: the inverse of `ttl_s`."""
        ...

    def answers_s(self, timeout_ms: int) -> float:
        """How long after a confirmed renewal was begun answers may go out."""
        ...

    def doubt_s(self, timeout_ms: int) -> float:
        """How long after a confirmed renewal was begun the session is known to live."""
        ...


class _Near:
    """A store that is always there, or whose loss ends every connection."""

    def renew_s(self, timeout_ms: int) -> float:
        return min(RENEW_S, timeout_ms / 8000)

    def ttl_s(self, timeout_ms: int) -> float:
        return timeout_ms / 1000 + self.renew_s(timeout_ms)

    def timeout_ms_of(self, ttl_s: float) -> int:
        return round(1000 * (ttl_s - RENEW_S if ttl_s >= 9 * RENEW_S else ttl_s / 9 * 8))

    def answers_s(self, timeout_ms: int) -> float:  # noqa: ARG002 (the same for all)
        return math.inf

    def doubt_s(self, timeout_ms: int) -> float:  # noqa: ARG002 (the same for all)
        return math.inf


class _Cluster:
    """A store on a cluster: see above."""

    def renew_s(self, timeout_ms: int) -> float:
        return self.ttl_s(timeout_ms) - timeout_ms / 1000

    def ttl_s(self, timeout_ms: int) -> float:
        return float(math.ceil(timeout_ms / 1000 + _APART_S))

    def timeout_ms_of(self, ttl_s: float) -> int:
        return round(1000 * (ttl_s - _APART_S))

    def answers_s(self, timeout_ms: int) -> float:
        return timeout_ms / 3000 + self.renew_s(timeout_ms)

    def doubt_s(self, timeout_ms: int) -> float:
        return timeout_ms / 1000


NEAR: Final[Rhythm] = _Near()
CLUSTER: Final[Rhythm] = _Cluster()
