"""Counters of traffic for `statistics()`, and a log of drops that cannot be flooded."""

from __future__ import annotations

import errno
import logging
from collections import Counter
from collections.abc import Mapping

import msgspec

from quoracy.membership.machine import Address
from quoracy.membership.runtime.envelope import DropReason

__all__ = ["Traffic", "TrafficStatistics"]

_log = logging.getLogger(__name__)

_LOG_EVERY_S = 10.0
# Addresses are logged in ASCII and quoted (%a): a stranger may have chosen them, and could otherwise
# write lines into our log.


class TrafficStatistics(msgspec.Struct, kw_only=True):
    """What one endpoint has seen since it was opened.

    packets_in, packet_bytes_in: everything read from the socket, including what was dropped afterwards.
    messages_in, messages_out: on streams, without control messages.
    dropped: what arrived and was not accepted, by the value of its `DropReason`.
    unsent: packets that the system did not take, by the name of the error (EMSGSIZE, ENETUNREACH, ...).
    undelivered: messages on streams that were not acknowledged.
    """

    packets_in: int = 0
    packets_out: int = 0
    packet_bytes_in: int = 0
    packet_bytes_out: int = 0
    messages_in: int = 0
    messages_out: int = 0
    stream_bytes_in: int = 0
    stream_bytes_out: int = 0
    connections_in: int = 0
    connections_out: int = 0
    undelivered: int = 0
    dropped: Mapping[str, int] = {}
    unsent: Mapping[str, int] = {}

    @property
    def dropped_count(self) -> int:
        return sum(self.dropped.values())


class Traffic:
    """The counters themselves.  Each reason is logged once in ten seconds at the most.

    >>> traffic = Traffic()
    >>> traffic.drop(DropReason.WRONG_LABEL, "10.0.0.9:7946", now=0.0)
    >>> dict(traffic.statistics().dropped)
    {'wrong label': 1}
    """

    def __init__(self) -> None:
        self.counts = TrafficStatistics()
        self._dropped: Counter[DropReason] = Counter()
        self._unsent: Counter[str] = Counter()
        self._logged_at: dict[str, float] = {}

    def drop(self, reason: DropReason, source: Address | tuple[object, ...], *, now: float) -> None:
        """Something from `source` was not accepted."""
        self._dropped[reason] = count = self._dropped[reason] + 1
        if self._is_news(reason.value, now):
            _log.warning("dropped what came from %a: %s (%d so far)", source, reason.value, count)

    def unsent(self, error: OSError | str, to: Address, *, now: float) -> None:
        """The system did not take a packet."""
        reason = error if isinstance(error, str) else errno.errorcode.get(error.errno or 0, "OSError")
        self._unsent[reason] = count = self._unsent[reason] + 1
        if self._is_news(reason, now):
            _log.warning("could not send a packet to %a: %s (%d so far)", to, error, count)

    def statistics(self) -> TrafficStatistics:
        return msgspec.structs.replace(
            self.counts,
            dropped={
                reason.value: count
                for reason, count in sorted(self._dropped.items(), key=lambda item: item[0].value)
            },
            unsent=dict(sorted(self._unsent.items())),
        )

    def _is_news(self, reason: str, now: float) -> bool:
        logged_at = self._logged_at.get(reason)
        if logged_at is not None and now - logged_at < _LOG_EVERY_S:
            return False
        self._logged_at[reason] = now
        return True
