"""Failure detectors: how suspicious the silence of a peer is.  See docs/guides/failure-detectors.md.

from quoracy.membership.detectors import PhiDetector, PhiSettings

detector = PhiDetector(PhiSettings(threshold=8.0))
detector.heartbeat(now)                 # whenever the peer is heard from
detector.level(now), detector.is_suspected(now), detector.suspected_at()
"""

from quoracy.membership.detectors.counter_values import (
    Beat,
    HeartbeatChange,
    HeartbeatChangeKind,
    HeartbeatSettings,
    HeartbeatStatistics,
)
from quoracy.membership.detectors.counters import CounterDetector, HeartbeatGossip
from quoracy.membership.detectors.fixed import FixedDetector
from quoracy.membership.detectors.interface import Detector
from quoracy.membership.detectors.phi import PhiDetector, PhiSettings
from quoracy.membership.detectors.registry import PeerDetectors

__all__ = [
    "Beat",
    "CounterDetector",
    "Detector",
    "FixedDetector",
    "HeartbeatChange",
    "HeartbeatChangeKind",
    "HeartbeatGossip",
    "HeartbeatSettings",
    "HeartbeatStatistics",
    "PeerDetectors",
    "PhiDetector",
    "PhiSettings",
]
