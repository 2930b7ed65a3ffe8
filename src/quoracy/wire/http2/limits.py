"""The limits of a connection, and the budgets that distinguish a busy peer from a flood.

A flood is a stream of frames that cause work without purpose: streams opened and reset, pings,
settings, empty frames.  Each such frame is charged to a budget.  A budget refills with time and,
faster, with useful work (what the application sends), because busy peers send such frames too:
grpc-go pings after data frames to measure the bandwidth, and C-core reopens windows by a few bytes
per message.
"""

from __future__ import annotations

import msgspec

__all__ = ["Budget", "Http2Limits"]


class Http2Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one connection.  Each comment says what happens beyond the limit."""

    # Streams that the peer may have open; more are refused with REFUSED_STREAM.  A call that waits (for
    # a lock, a watch) occupies one, so with a small limit a busy client would block itself.
    streams_max: int = 4_096
    # The largest frame payload that we accept (SETTINGS_MAX_FRAME_SIZE); FRAME_SIZE_ERROR.
    frame_bytes_max: int = 16_384
    # What the peer may send, on one stream and on all together, before the application has consumed it.
    # This bounds the memory for received bytes; FLOW_CONTROL_ERROR.
    stream_window: int = 1_048_576
    connection_window: int = 4_194_304
    # Decoded size of a header list (names, values and 32 bytes each) and its length: the stream is
    # reset with ENHANCE_YOUR_CALM; at four times the size, the connection ends.
    header_list_bytes_max: int = 65_536
    header_count_max: int = 256
    # Encoded size of a header list and the CONTINUATION frames it comes in; the connection ends.
    header_block_bytes_max: int = 65_536
    continuations_max: int = 32
    # The peer's HPACK table (SETTINGS_HEADER_TABLE_SIZE).
    header_table_bytes_max: int = 4_096
    # The cache of decoded header blocks; the oldest one is dropped.
    cached_blocks_max: int = 128
    cached_bytes_max: int = 65_536
    # Recently reset streams, whose late frames are ignored; the oldest is forgotten.
    recently_reset_max: int = 4_096
    # Replies to the peer's frames (acks, resets) that wait to be sent; the connection ends.
    control_bytes_max: int = 65_536
    # Streams that the peer reset, or made us reset.  The burst lets a client cancel all of its calls at
    # once.  Each frame that we send on a stream allows one more, so only resets of unanswered streams
    # add up.
    resets_burst: int = 4_096
    resets_per_s: float = 100.0
    # Frames without useful work: PING, SETTINGS, PRIORITY, WINDOW_UPDATE, unknown types, empty DATA,
    # resets of closed streams, HPACK table resizes.  Each reply that we send allows four more.
    overhead_burst: int = 10_000
    overhead_per_s: float = 200.0


class Budget:
    """A token bucket that refills with time and with useful work."""

    __slots__ = ("_burst", "_per_s", "_per_work", "_seen_at", "_seen_work", "_tokens")

    def __init__(self, *, burst: int, per_s: float, per_work: int) -> None:
        self._burst = float(burst)
        self._per_s = per_s
        self._per_work = per_work
        self._tokens = float(burst)
        self._seen_at: float | None = None
        self._seen_work = 0

    def charge(self, cost: int, *, now: float, work: int) -> bool:
        """Whether the budget covers the cost.  `work` is a counter that never decreases."""
        earned = float((work - self._seen_work) * self._per_work)
        if self._seen_at is not None and now > self._seen_at:
            earned += (now - self._seen_at) * self._per_s
        self._seen_at, self._seen_work = now, work
        self._tokens = min(self._burst, self._tokens + earned) - cost
        return self._tokens >= 0
