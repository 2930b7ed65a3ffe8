"""The state of every member as one of them knows it, and the rules by which messages change it.

Of two messages about one member the one with the higher incarnation wins; within one incarnation
suspect beats alive, and dead beats both.  Only the member itself raises its incarnation: to refute an
accusation, with a number above the accused one, or to change its metadata.  A death that a member
announces itself is a goodbye.

Invariants
    * The incarnation known of a name never goes down, until the name is forgotten.
    * Our own state is never suspect or dead.
    * Every change is reported and passed on exactly once; but a goodbye is passed on again when another
      member turns out to have missed it.
    * A name belongs to one address; another gets it when the first left, or is dead for `reclaim_s`.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

import msgspec

from quoracy.errors import InvalidRequest
from quoracy.membership.machine import Address
from quoracy.membership.model import (
    ADDRESS_CHARS_MAX,
    INCARNATION_MAX,
    Conflict,
    Member,
    MemberChange,
    MemberChangeKind,
    MemberState,
)
from quoracy.membership.settings import NAME_BYTES_MAX, SwimSettings
from quoracy.membership.swim.lifeguard import LocalHealth, Suspicion
from quoracy.membership.swim.member_table import MemberTable
from quoracy.membership.swim.messages import (
    Alive,
    Dead,
    Suspect,
    encode,
)
from quoracy.membership.swim.send_queue import Broadcasts, Outbox

__all__ = ["MemberStates"]

_ALIVE, _SUSPECT, _DEAD, _LEFT = MemberState
_replace = msgspec.structs.replace


class MemberStates:
    """The table of members, the suspicions, and the rules."""

    def __init__(
        self, me: Member, settings: SwimSettings, out: Outbox, members: Iterable[Member] | MemberTable
    ) -> None:
        self.me = me
        self.is_leaving = False
        self.health = LocalHealth(settings.health_max)
        self.news = Broadcasts(settings.updates_max)
        if isinstance(members, MemberTable):
            self.table = members.copy(me.name)
        else:
            self.table = MemberTable(me.name, members)
        self.table.put(me)
        if len(self.table) > self.table.present_count:
            raise InvalidRequest(
                f"{me.name} is to start with members that are dead or left: give those who are present"
            )
        self.refutations_count = self.suspicions_count = self.deaths_count = 0
        self.turned_away_count = 0
        self._settings = settings
        self._out = out
        self._suspicions: dict[str, Suspicion] = {}
        self._suspicions_due: list[tuple[float, str]] = []  # a heap; what is outdated is passed over
        self._gone_since: dict[str, float] = {}  # the dead and those who left, longest first
        self._dead: dict[str, None] = {}

    # -- what is asked -------------------------------------------------------------------------------

    @property
    def suspicion_due(self) -> float | None:
        """When the next suspect has had its time, or may have."""
        return self._suspicions_due[0][0] if self._suspicions_due else None

    @property
    def forget_due(self) -> float | None:
        for since in self._gone_since.values():
            return since + self._settings.forget_s
        return None

    @property
    def others_count(self) -> int:
        """How many others are alive or suspected."""
        return self.table.present_count - self.me.is_present

    @property
    def has_dead(self) -> bool:
        """Whether there is a dead member, which may come back."""
        return bool(self._dead)

    @property
    def dead_names(self) -> list[str]:
        return list(self._dead)

    def recently_dead(self, now: float) -> list[Member]:
        """The members that are still sent the news of their death, in case they live."""
        recent: list[Member] = []
        for name, since in reversed(self._gone_since.items()):
            if now - since > self._settings.gossip_to_dead_s:
                break
            member = self.table.members[name]
            if member.state is _DEAD:
                recent.append(member)
        return recent

    # -- what is heard -------------------------------------------------------------------------------

    def hear_alive(self, news: Alive, now: float, *, passes_on: bool = True) -> None:
        name, incarnation = news.name, news.incarnation
        if name == self.me.name:
            self._hear_of_us(news)
            return
        old = self.table.get(name)
        if old is None:
            if not _is_short(news) or not self._has_room():
                self.turned_away_count += 1
                return
            member = Member(name, news.address, incarnation, _ALIVE, news.meta)
        elif incarnation <= old.incarnation:
            return
        elif news.address == old.address:
            # Name and address stay the same objects, of which there may be one for each member.
            member = _replace(old, incarnation=incarnation, state=_ALIVE, meta=news.meta)
        elif _is_short(news) and self._is_free(old, now):
            member = Member(name, news.address, incarnation, _ALIVE, news.meta)
        else:
            self._out.tell(Conflict(old, news.address))
            return
        self._change(old, member, now, by=member.name)
        if passes_on:
            self.news.put(member.name, encode(news))

    def hear_suspect(self, news: Suspect, now: float) -> None:
        name, incarnation = news.name, news.incarnation
        old = self.table.get(name)
        if old is None or incarnation < old.incarnation:
            return
        if name == self.me.name:
            self._refute(incarnation)
            return
        suspicion = self._suspicions.get(name)
        if suspicion is not None and incarnation == old.incarnation:
            if suspicion.confirm(news.accuser):
                heapq.heappush(self._suspicions_due, (suspicion.deadline, old.name))
                self.news.put(old.name, encode(news))
            return
        if not old.is_present:
            self._repeat_goodbye(old, incarnation)
            return
        # Of a higher incarnation it is a new suspicion: it answered the one we know of.
        self.suspicions_count += 1
        self._suspect(old.name, news.accuser, now)
        member = _replace(old, incarnation=incarnation, state=_SUSPECT)
        self._change(old, member, now, by=news.accuser)
        self.news.put(old.name, encode(news))

    def hear_dead(self, news: Dead, now: float) -> None:
        old = self.table.get(news.name)
        if old is None or news.incarnation < old.incarnation:
            return
        if news.name == self.me.name:
            self._refute(news.incarnation)
            return
        state = _LEFT if news.accuser == news.name else _DEAD
        if not old.is_present and news.incarnation == old.incarnation and state <= old.state:
            if state is _DEAD:
                self._repeat_goodbye(old, news.incarnation)
            return
        if old.is_present and state is _DEAD:
            self.deaths_count += 1
        member = _replace(old, incarnation=news.incarnation, state=state)
        self._change(old, member, now, by=news.accuser)
        self.news.put(news.name, encode(news))

    def hear_record(self, record: Member, now: float, *, passes_on: bool = True) -> None:
        """A record of another table.  It may be old, so a death in it only makes a suspect."""
        if record.state is _LEFT:
            self.hear_dead(Dead(record.name, record.incarnation, record.name), now)
            return
        if record.state is not _DEAD:
            alive = Alive(record.name, record.address, record.incarnation, record.meta)
            self.hear_alive(alive, now, passes_on=passes_on)
        if record.state is not _ALIVE:  # of one we never heard of this does nothing
            self.hear_suspect(Suspect(record.name, record.incarnation, self.me.name), now)

    # -- what we say ourselves -----------------------------------------------------------------------

    def accuse(self, name: str, now: float) -> None:
        """Suspect a member that did not answer us."""
        member = self.table.get(name)
        if member is not None:
            self.hear_suspect(Suspect(name, member.incarnation, self.me.name), now)

    def say_alive(self) -> None:
        """Send everyone the news that we are alive."""
        me = self.me
        self.news.put(me.name, encode(Alive(me.name, me.address, me.incarnation, me.meta)))

    def say_changed(self, meta: bytes) -> None:
        """Send everyone our new metadata."""
        self._become(_replace(self.me, incarnation=_above(self.me.incarnation), meta=meta))
        self.say_alive()

    def say_goodbye(self) -> None:
        self.is_leaving = True
        self._become(_replace(self.me, state=_LEFT))
        self.news.put(self.me.name, encode(Dead(self.me.name, self.me.incarnation, self.me.name)))

    def accusation(self, name: str) -> bytes | None:
        """The news about a suspected or dead member, for itself, so that it can refute at once."""
        member = self.table.get(name)
        if member is None or member.state is _ALIVE:
            return None
        if member.state is _SUSPECT:
            return encode(Suspect(name, member.incarnation, self.me.name))
        # If it left, this is what it said itself; if it has come back, it must refute it.
        return encode(Dead(name, member.incarnation, self.me.name))

    # -- time ----------------------------------------------------------------------------------------

    def expire(self, now: float) -> None:
        """Declare suspects dead whose time is over; forget members that are gone for `forget_s`."""
        due = self._suspicions_due
        while due and due[0][0] <= now:
            _, name = heapq.heappop(due)
            suspicion = self._suspicions.get(name)
            if suspicion is None or suspicion.deadline > now:
                continue  # it was answered; or confirmed or postponed, and is in the heap again
            member = self.table.get(name)
            assert member is not None
            self.hear_dead(Dead(name, member.incarnation, self.me.name), now)
        while (forget := self.forget_due) is not None and forget <= now:
            self._forget(next(iter(self._gone_since)))

    def postpone(self, seconds: float, at_least: float) -> None:
        """We were stopped for some seconds: move all deadlines by them, to `at_least` or later."""
        for suspicion in self._suspicions.values():
            suspicion.postpone(seconds, at_least)
        self._suspicions_due = [
            (suspicion.deadline, name) for name, suspicion in self._suspicions.items()
        ]
        heapq.heapify(self._suspicions_due)

    # -- inside --------------------------------------------------------------------------------------

    def _hear_of_us(self, news: Alive) -> None:
        if self.is_leaving or news.incarnation < self.me.incarnation:
            return
        if news.address != self.me.address:
            # Another member has our name.  A higher incarnation would only provoke a higher one.
            self._out.tell(Conflict(self.me, news.address))
        elif news.incarnation > self.me.incarnation or news.meta != self.me.meta:
            self._refute(news.incarnation)  # said by us before a restart

    def _refute(self, accused: int) -> None:
        if self.is_leaving:
            return
        self.refutations_count += 1
        self.health.note(+1)
        self._become(_replace(self.me, incarnation=_above(max(accused, self.me.incarnation))))
        self.say_alive()

    def _repeat_goodbye(self, member: Member, accused: int) -> None:
        """An accusation of a member that left: the accuser missed the goodbye, so repeat it."""
        if member.state is _LEFT and member.incarnation == accused and member.name not in self.news:
            self.news.put(member.name, encode(Dead(member.name, member.incarnation, member.name)))

    def _become(self, me: Member) -> None:
        self.me = me
        self.table.put(me)

    def _suspect(self, name: str, accuser: str, now: float) -> None:
        settings = self._settings
        count = self.table.present_count
        confirmations_max = settings.suspicion_mult - 2
        if count - 2 < confirmations_max:  # besides us and the suspect
            confirmations_max = 0
        min_s = settings.suspicion_min_s(count)
        suspicion = Suspicion(
            accuser,
            confirmations_max=confirmations_max,
            min_s=min_s,
            max_s=min_s * settings.suspicion_max_mult,
            now=now,
        )
        self._suspicions[name] = suspicion
        heapq.heappush(self._suspicions_due, (suspicion.deadline, name))

    def _has_room(self) -> bool:
        """Whether one more member fits; the one that is gone for longest makes room."""
        if len(self.table) < self._settings.members_max:
            return True
        for name in self._gone_since:
            self._forget(name)
            return True
        return False

    def _is_free(self, member: Member, now: float) -> bool:
        """Whether another address may take this name."""
        if member.state is _DEAD:
            return now - self._gone_since[member.name] > self._settings.reclaim_s
        return member.state is _LEFT

    def _change(self, old: Member | None, new: Member, now: float, *, by: str) -> None:
        self.table.put(new)
        if new.state is not _SUSPECT:
            self._suspicions.pop(new.name, None)
        if new.is_present:
            self._gone_since.pop(new.name, None)
            self._dead.pop(new.name, None)
        elif old is None or old.state is not new.state:
            self._gone_since.pop(new.name, None)
            self._gone_since[new.name] = now
            self._dead.pop(new.name, None)
            if new.state is _DEAD:
                self._dead[new.name] = None
        for kind in _kinds_of(old, new):
            self._out.tell(MemberChange(kind, new, by))

    def _forget(self, name: str) -> None:
        member = self.table.get(name)
        assert member is not None
        self.table.forget(name)
        del self._gone_since[name]
        self._dead.pop(name, None)
        self.news.drop(name)
        self._out.tell(MemberChange(MemberChangeKind.FORGOTTEN, member))

    def address_of(self, name: str) -> Address | None:
        member = self.table.get(name)
        return None if member is None else member.address


def _kinds_of(old: Member | None, new: Member) -> list[MemberChangeKind]:
    if old is not None and old.state is new.state and new.state is not _ALIVE:
        return []  # only the incarnation is higher
    if old is not None and old.state is _LEFT and new.state is _DEAD:
        return []  # it came back and died, and we missed both changes
    if new.state is _SUSPECT:
        return [MemberChangeKind.SUSPECTED]
    if new.state is _DEAD:
        return [MemberChangeKind.DIED]
    if new.state is _LEFT:
        return [MemberChangeKind.LEFT]
    if old is None or not old.is_present:
        return [MemberChangeKind.JOINED]
    kinds = []
    if old.state is _SUSPECT:
        kinds.append(MemberChangeKind.RECOVERED)
    if old.meta != new.meta:
        kinds.append(MemberChangeKind.UPDATED)
    return kinds


def _is_short(news: Alive) -> bool:
    # Messages are bounded in characters, packets in bytes: longer than this, one that is to probe it
    # might not fit.
    name_bytes, address_bytes = len(news.name.encode()), len(news.address.encode())
    return name_bytes <= NAME_BYTES_MAX and address_bytes <= ADDRESS_CHARS_MAX


def _above(incarnation: int) -> int:
    # At the end of the numbers nothing can be refuted any more; honest members need 10**8 years.
    return min(incarnation + 1, INCARNATION_MAX - 1)
