"""Failure detectors: how suspicious the silence of a peer is.  See docs/guides/failure-detectors.md.

from quorate.membership.detectors import PhiDetector, PhiSettings

detector = PhiDetector(PhiSettings(threshold=8.0))
detector.heartbeat(now)                 # whenever the peer is heard from
detector.level(now), detector.is_suspected(now), detector.suspected_at()
"""

from quorate.membership.detectors.counter_values import (
    Beat,
    HeartbeatChange,
    HeartbeatChangeKind,
    HeartbeatSettings,
    HeartbeatStatistics,
)
from quorate.membership.detectors.counters import CounterDetector, HeartbeatGossip
from quorate.membership.detectors.fixed import FixedDetector
from quorate.membership.detectors.interface import Detector
from quorate.membership.detectors.phi import PhiDetector, PhiSettings
from quorate.membership.detectors.registry import PeerDetectors

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
