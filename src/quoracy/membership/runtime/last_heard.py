"""When each member was last heard from directly, and how surprising its silence is.

SWIM decides who is dead; this only watches, for people.  Every packet that comes straight from a member
is a heartbeat of it.  How often that is depends on the size of the cluster, and it comes at random, so
each member has a phi detector of the exponential kind that learns its own rhythm.

Invariants
    * At most `members_max` detectors are kept.  Beyond, the one that was heard longest ago is let go
      of; it begins anew when its member is heard again.
    * What comes from an address where no member is known to be is not counted.
"""

from __future__ import annotations

import msgspec

from quoracy.membership.detectors.detector import PeerDetectors
from quoracy.membership.detectors.phi import PhiDetector, PhiSettings
from quoracy.membership.machine import Address

__all__ = ["HEARD_MAX", "Heard", "Hearing"]

HEARD_MAX = 4_096
_WINDOW_MAX = 50


class Heard(msgspec.Struct, frozen=True, gc=False):
    """How long ago a member was heard from, and how surprising that is: 8 is one time in 10**8."""

    ago_s: float
    phi: float


class Hearing:
    """Who was heard when.

    >>> hearing = Hearing(probe_interval_s=1.0)
    >>> hearing.know("a", "10.0.0.1:7946")
    >>> hearing.packet_from("10.0.0.1:7946", 5.0)
    >>> hearing.heard("a", 7.0).ago_s, hearing.heard("b", 7.0)
    (2.0, None)
    """

    def __init__(self, *, probe_interval_s: float, members_max: int = HEARD_MAX) -> None:
        self._probe_interval_s = probe_interval_s
        self._names: dict[Address, str] = {}
        self._addresses: dict[str, Address] = {}
        self._detectors = PeerDetectors(self._detector, peers_max=members_max)

    def __len__(self) -> int:
        return len(self._detectors)

    def know(self, name: str, address: Address) -> None:
        """A member is at this address now; what was learnt of another life of it does not count."""
        self.forget(name)
        self._names[address] = name
        self._addresses[name] = address

    def forget(self, name: str) -> None:
        self._detectors.forget(name)
        address = self._addresses.pop(name, None)
        if address is not None and self._names.get(address) == name:
            del self._names[address]

    def packet_from(self, address: Address, now: float) -> None:
        """Something that could be believed came from there."""
        name = self._names.get(address)
        if name is not None:
            self._detectors.heartbeat(name, now)

    def heard(self, name: str, now: float) -> Heard | None:
        """None if it was not heard from directly, or so long ago that nothing is kept of it."""
        detector = self._detectors.get(name)
        if detector is None or detector.heard_at is None:
            return None
        return Heard(now - detector.heard_at, detector.level(now))

    def _detector(self) -> PhiDetector:
        # Each member probes one other in an interval and answers those who probe it: of a given one
        # something comes twice in as many intervals as there are others.
        others = max(1, len(self._addresses))
        return PhiDetector(
            PhiSettings(
                first_interval_s=self._probe_interval_s * max(1.0, others / 2),
                window_max=_WINDOW_MAX,
                acceptable_pause_s=self._probe_interval_s,
                distribution="exponential",
            )
        )
