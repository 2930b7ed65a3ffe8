"""When each member was last heard from directly, and how improbable its silence is.

This is for reports only; SWIM decides which members are dead.  Every packet that comes directly from a
member is a heartbeat of it.  How often packets come depends on the size of the cluster, and they come
at random, so each member has a phi detector of the exponential kind.

Invariants
    * At most `members_max` detectors are kept.  Beyond, the one that was heard longest ago is dropped;
      a new one is made when its member is heard again.
    * Packets from addresses of no known member are not counted.
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
    """How long ago a member was heard from, and how improbable that is: 8 is one in 10**8."""

    ago_s: float
    phi: float


class Hearing:
    """The phi detectors of all members.

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
        """A member is at this address now; what was learnt before does not count."""
        self.forget(name)
        self._names[address] = name
        self._addresses[name] = address

    def forget(self, name: str) -> None:
        self._detectors.forget(name)
        address = self._addresses.pop(name, None)
        if address is not None and self._names.get(address) == name:
            del self._names[address]

    def packet_from(self, address: Address, now: float) -> None:
        """A valid packet came from this address."""
        name = self._names.get(address)
        if name is not None:
            self._detectors.heartbeat(name, now)

    def heard(self, name: str, now: float) -> Heard | None:
        """None if it was not heard from directly, or its detector was dropped."""
        detector = self._detectors.get(name)
        if detector is None or detector.heard_at is None:
            return None
        return Heard(now - detector.heard_at, detector.level(now))

    def _detector(self) -> PhiDetector:
        # Each member probes one other in an interval and answers the probes of others: a packet of a
        # given member comes twice in as many intervals as there are others.
        others = max(1, len(self._addresses))
        return PhiDetector(
            PhiSettings(
                first_interval_s=self._probe_interval_s * max(1.0, others / 2),
                window_max=_WINDOW_MAX,
                acceptable_pause_s=self._probe_interval_s,
                distribution="exponential",
            )
        )
