"""What a peer has sent and was not taken yet: part of a frame, and whole frames that have to wait.

At most one frame of jute.maxbuffer is kept in part.  Of whole ones, once there are `KEPT_BYTES_MAX`,
the peer is not read from until half of that is taken; what was read by then is kept as well.
"""

from __future__ import annotations

from typing import Final

from quoracy.faces.zookeeper.admin.stats import ConnectionStats
from quoracy.faces.zookeeper.serving.interfaces import Peer
from quoracy.wire.zookeeper.jute import FrameSplitter

__all__ = ["KEPT_BYTES_MAX", "Intake"]

# Enough for the pings of hours: a client that waits is heard to be alive.
KEPT_BYTES_MAX: Final = 64 * 1024


class Intake:
    """Frames in their order; who keeps some knows who will take them."""

    __slots__ = ("_can_read", "_kept_bytes", "_peer", "_stats", "kept", "split")

    def __init__(self, peer: Peer, stats: ConnectionStats, frame_bytes_max: int) -> None:
        self._peer, self._stats = peer, stats
        self.split = FrameSplitter(frame_bytes_max).feed  # the frames that these bytes complete
        self.kept: list[bytes] = []
        self._kept_bytes = 0
        self._can_read = True

    def keep(self, frames: list[bytes]) -> None:
        self.kept += frames
        self._kept_bytes += sum(map(len, frames))
        if self._can_read and self._kept_bytes > KEPT_BYTES_MAX:
            self._can_read = self._stats.reading = False
            self._peer.pause_reading()

    def taken(self, count: int) -> None:
        """So many of those that were kept are not needed any more."""
        kept = self.kept
        self._kept_bytes -= sum(map(len, kept[:count]))
        del kept[:count]
        if not self._can_read and self._kept_bytes <= KEPT_BYTES_MAX // 2:
            self._can_read = self._stats.reading = True
            self._peer.resume_reading()
