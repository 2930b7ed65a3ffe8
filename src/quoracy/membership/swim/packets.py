"""Packets: messages for the receiver, and as much news as fits beside them.

Invariants
    * A packet is at most `packet_bytes_max` long.
    * News of members goes before users' messages.
"""

from __future__ import annotations

from quoracy.membership.machine import Address
from quoracy.membership.model import Member
from quoracy.membership.settings import SwimSettings
from quoracy.membership.swim.member_states import MemberStates
from quoracy.membership.swim.messages import compose
from quoracy.membership.swim.send_queue import Broadcasts, Outbox

__all__ = ["HEAD_BYTES", "Packets"]

HEAD_BYTES = 3  # of the array that a packet is


class Packets:
    """Builds all packets of one member."""

    def __init__(self, states: MemberStates, settings: SwimSettings, out: Outbox) -> None:
        self.shouts = Broadcasts(settings.updates_max)
        self._states, self._settings, self._out = states, settings, out
        self._room = settings.packet_bytes_max - HEAD_BYTES
        self._counted = -1
        self._transmits_max = 0

    @property
    def has_news(self) -> bool:
        return len(self._states.news) > 0 or len(self.shouts) > 0

    def send(self, to: Address, pieces: list[bytes]) -> None:
        """Send these, and news with them."""
        if self.has_news:
            pieces += self._news(self._room - sum(map(len, pieces)))
        self._out.packet(to, compose(pieces))

    def send_news(self, to: Address) -> bool:
        """Send nothing but news.  Returns whether there was any that fits."""
        pieces = self._news(self._room)
        if pieces:
            self._out.packet(to, compose(pieces))
        return bool(pieces)

    def send_accusation(self, member: Member) -> None:
        """Send a member only the news about itself; that does not count as sent."""
        accusation = self._states.accusation(member.name)
        if accusation is not None:
            self._out.packet(member.address, compose([accusation]))

    def _news(self, room: int) -> list[bytes]:
        count = self._states.table.present_count
        if count != self._counted:
            self._counted = count
            self._transmits_max = max(1, self._settings.transmits_max(count))
        news = self._states.news.take(room=room, transmits_max=self._transmits_max)
        if len(self.shouts):
            room -= sum(map(len, news))
            news += self.shouts.take(room=room, transmits_max=self._transmits_max)
        return news
