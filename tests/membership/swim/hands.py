"""Small things that the tests of the SWIM core have in common: machines at hand, messages in sight."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import TypeVar

from quoracy.membership.machine import Effect, SendPacket, SendStream, Tell
from quoracy.membership.model import Member, MemberChange, MemberState
from quoracy.membership.settings import SwimSettings
from quoracy.membership.swim import Swim
from quoracy.membership.swim.member_states import MemberStates
from quoracy.membership.swim.messages import (
    PacketMessage,
    StreamMessage,
    compose,
    decode_packet,
    decode_stream,
    encode,
)
from quoracy.membership.swim.send_queue import Outbox

__all__ = [
    "Mind",
    "address",
    "alive",
    "changes",
    "events",
    "packet",
    "packets",
    "streams",
    "swim",
]

T = TypeVar("T")


def address(name: str) -> str:
    return f"{name}:1"


def alive(*names: str, incarnation: int = 1) -> list[Member]:
    return [Member(name, address(name), incarnation) for name in names]


def swim(name: str = "a", *others: str, now: float = 0.0, **settings: object) -> Swim:
    """A member that was started at `now` and knows the others."""
    machine = Swim(
        name,
        address(name),
        rng=random.Random(name),
        settings=SwimSettings(**settings),  # type: ignore[arg-type]
        members=alive(*others),
    )
    machine.start(now)
    return machine


def packet(*messages: PacketMessage) -> bytes:
    return compose([encode(message) for message in messages])


def packets(effects: Iterable[Effect], to: str | None = None) -> list[tuple[str, PacketMessage]]:
    """All messages in all packets, each with where it goes."""
    return [
        (effect.to, message)
        for effect in effects
        if isinstance(effect, SendPacket) and to in (None, effect.to)
        for message in decode_packet(effect.data)
    ]


def streams(effects: Iterable[Effect]) -> list[tuple[str, StreamMessage]]:
    return [
        (effect.to, decode_stream(effect.data)) for effect in effects if isinstance(effect, SendStream)
    ]


def events(effects: Iterable[Effect], kind: type[T]) -> list[T]:
    return [
        effect.event
        for effect in effects
        if isinstance(effect, Tell) and isinstance(effect.event, kind)
    ]


def changes(effects: Iterable[Effect]) -> list[str]:
    """What was told of members, as words."""
    return [f"{change.member.name} {change.kind.value}" for change in events(effects, MemberChange)]


class Mind:
    """The states of `a`, with what they said and told."""

    def __init__(self, others: Sequence[Member] = (), **settings: object) -> None:
        self.settings = SwimSettings(**settings)  # type: ignore[arg-type]
        self.out = Outbox()
        me = Member("a", address("a"), 1)
        self.states = MemberStates(me, self.settings, self.out, others)

    def told(self) -> list[str]:
        return changes(self.out.take())

    def said(self) -> list[PacketMessage]:
        """All news, once."""
        pieces = self.states.news.take(room=60_000, transmits_max=1)
        return decode_packet(compose(pieces))

    def state(self, name: str) -> tuple[MemberState, int] | None:
        member = self.states.table.get(name)
        return None if member is None else (member.state, member.incarnation)
