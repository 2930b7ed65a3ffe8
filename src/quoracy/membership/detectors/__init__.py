"""Failure detectors: how suspicious the silence of a peer is.  See docs/guides/failure-detectors.md.

from quoracy.membership.detectors import PhiDetector, PhiSettings

detector = PhiDetector(PhiSettings(threshold=8.0))
detector.heartbeat(now)                 # whenever the peer is heard from
detector.level(now), detector.is_suspected(now), detector.suspected_at()
"""

from quoracy.membership.detectors.detector import Detector, FixedDetector, PeerDetectors
from quoracy.membership.detectors.heartbeat_gossip import CounterDetector, HeartbeatGossip
from quoracy.membership.detectors.heartbeat_messages import (
    Beat,
    HeartbeatChange,
    HeartbeatChangeKind,
    HeartbeatSettings,
    HeartbeatStatistics,
)
from quoracy.membership.detectors.phi import PhiDetector, PhiSettings

__all__ = [
    "Beat", "CounterDetector", "Detector", "FixedDetector", "HeartbeatChange", "HeartbeatChangeKind",
    "HeartbeatGossip", "HeartbeatSettings", "HeartbeatStatistics", "PeerDetectors", "PhiDetector",
    "PhiSettings",
]  # fmt: skip
