"""A detector for each of many peers, made when a peer is first heard from.

Invariants
    * At most `peers_max` peers.  When there are more, the one that was heard from longest ago makes
      room: it is missed least, being suspected already or the next to be.
    * A peer without a detector has level 0 and is not suspected.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator

from quoracy.errors import InvalidRequest
from quoracy.membership.detectors.interface import Detector

__all__ = ["PeerDetectors"]


class PeerDetectors:
    """Suspicion levels by the name of a peer.

    factory: makes the detector of a peer, `PhiDetector` for instance.

    >>> from quoracy.membership.detectors import FixedDetector
    >>> peers = PeerDetectors(lambda: FixedDetector(timeout_s=2.0))
    >>> peers.heartbeat("a", 0.0)
    >>> peers.heartbeat("b", 1.0)
    >>> peers.levels(2.0)
    {'a': 1.0, 'b': 0.5}
    >>> peers.suspected(2.0), peers.next_suspicion(2.0)
    (['a'], 3.0)
    """

    __slots__ = ("_detectors", "_factory", "_peers_max")

    def __init__(self, factory: Callable[[], Detector], *, peers_max: int = 65_536) -> None:
        if peers_max < 1:
            raise InvalidRequest(f"peers_max must be at least 1, not {peers_max}")
        self._factory = factory
        self._peers_max = peers_max
        # In the order of their last heartbeats, the longest ago first.
        self._detectors: OrderedDict[str, Detector] = OrderedDict()

    def __len__(self) -> int:
        return len(self._detectors)

    def __contains__(self, peer: str) -> bool:
        return peer in self._detectors

    def __iter__(self) -> Iterator[str]:
        """The peers that have a detector; the one heard from longest ago first."""
        return iter(tuple(self._detectors))

    def heartbeat(self, peer: str, now: float) -> None:
        """A peer was heard from."""
        detector = self._detectors.get(peer)
        if detector is None:
            detector = self._factory()
            detector.heartbeat(now)
            if len(self._detectors) >= self._peers_max:
                self._detectors.popitem(last=False)
            self._detectors[peer] = detector
            return
        detector.heartbeat(now)
        self._detectors.move_to_end(peer)

    def get(self, peer: str) -> Detector | None:
        """The detector of a peer, if it was heard from."""
        return self._detectors.get(peer)

    def level(self, peer: str, now: float) -> float:
        """How suspicious the silence of a peer is."""
        detector = self._detectors.get(peer)
        return 0.0 if detector is None else detector.level(now)

    def is_suspected(self, peer: str, now: float) -> bool:
        """The verdict on a peer."""
        detector = self._detectors.get(peer)
        return detector is not None and detector.is_suspected(now)

    def levels(self, now: float) -> dict[str, float]:
        """The levels of all peers that were heard from."""
        return {peer: detector.level(now) for peer, detector in self._detectors.items()}

    def suspected(self, now: float) -> list[str]:
        """The peers that are suspected."""
        return [peer for peer, detector in self._detectors.items() if detector.is_suspected(now)]

    def next_suspicion(self, now: float) -> float | None:
        """When the next peer that is not suspected yet will be, if nothing arrives; None for never."""
        moments = (detector.suspected_at() for detector in self._detectors.values())
        return min((moment for moment in moments if moment is not None and moment > now), default=None)

    def reset(self, peer: str) -> None:
        """A peer was restarted: what was learnt of the one before is forgotten.  Nothing happens if the
        peer is not known."""
        if (detector := self._detectors.get(peer)) is not None:
            detector.reset()

    def forget(self, peer: str) -> None:
        """A peer is no longer of interest.  Nothing happens if it is not known."""
        self._detectors.pop(peer, None)
