"""The seats of a double barrier, and how a round is opened over them.

    name/in/<session>-<number>    a seat: who sits there, on the session's lease
    name/open                     the round: its members, each with the revision of its seat
    name/withdrawn                rewritten by everyone who gives a seat up while waiting

A round is opened by the participant who completes the number, and by nobody else: the youngest of those
who are needed.  Should it die before, the next board shows who is in its place.

Invariants
    * There is one round at a time, and it is opened only if nobody has given up a seat since the opener
      looked: `withdrawn` is as it was seen.  So whoever gave up before a round opened is not in it.
    * A seat that is listed and gone belongs to somebody who died or went away after the number was
      complete; it is never counted for another round.  A round whose members are all gone is cleared
      away by the next who takes a seat.
    * Whatever raises takes its seat away: at once, in the background, or with the session.
"""

from __future__ import annotations

import itertools
import logging
from contextlib import aclosing

import msgspec

from quoracy.client.codec import codec_of
from quoracy.client.compare_and_swap import found_first, unchanged
from quoracy.client.context import Ground
from quoracy.client.in_flight import Outcome
from quoracy.client.key_follower import ASK_AGAIN_S, KeyValues, states
from quoracy.client.session import Session
from quoracy.errors import (
    Indeterminate,
    InvalidRequest,
    LeaseNotFound,
    SessionLost,
    StoreClosed,
    Unavailable,
)
from quoracy.store.model import (
    Compare,
    Delete,
    KeyRange,
    KeyValue,
    Op,
    Put,
    Range,
    RangeResult,
    Txn,
    TxnResult,
)

__all__ = ["Hall", "Member", "Present", "Seat", "board_of"]

_log = logging.getLogger(__name__)
_numbers = itertools.count(1)


class Present(msgspec.Struct, frozen=True):
    """What is in a seat: who, how many it waits for, and whether it is done."""

    identity: str
    count: int
    is_leaving: bool = False


class Member(msgspec.Struct, frozen=True, array_like=True):
    """A participant of a round: its seat, the revision at which it took it, and who it is."""

    seat: str
    since: int
    identity: str


class _Round(msgspec.Struct, frozen=True):
    members: tuple[Member, ...]


_present = codec_of(Present)
_round = codec_of(_Round)


class Hall:
    """The keys of one double barrier."""

    def __init__(self, key: bytes) -> None:
        self.seats = key + b"/in/"
        self.open, self.withdrawn = key + b"/open", key + b"/withdrawn"
        self.everything = KeyRange.prefix(key + b"/")

    def present(self, kv: KeyValue) -> Present:
        """Who is in a seat."""
        return _present.decode(kv.key, kv.value)

    def members(self, opened: KeyValue) -> tuple[Member, ...]:
        """Who is in a round."""
        return _round.decode(opened.key, opened.value).members

    def sitting(self, member: Member, kvs: KeyValues) -> Present | None:
        """What a member has in its seat; None: it is gone."""
        kv = kvs.get(self.seats + member.seat.encode())
        return self.present(kv) if kv is not None and kv.create_revision == member.since else None

    def is_over(self, opened: KeyValue, kvs: KeyValues) -> bool:
        """Whether every member of a round has left or is gone."""
        seats = (self.sitting(member, kvs) for member in self.members(opened))
        return all(seat is None or seat.is_leaving for seat in seats)

    def waiting(self, kvs: KeyValues) -> list[KeyValue]:
        """The seats of those who are in no round, the oldest first."""
        opened = kvs.get(self.open)
        inside = (
            set() if opened is None else {self.seats + m.seat.encode() for m in self.members(opened)}
        )
        seats = (kv for key, kv in kvs.items() if key.startswith(self.seats) and key not in inside)
        return sorted(
            (kv for kv in seats if not self.present(kv).is_leaving), key=lambda kv: kv.create_revision
        )


class Seat:
    """The seat of one participant, from taking it until it is in a round.

    since: the revision at which it was taken; 0: it is not, as far as is known.
    """

    def __init__(self, ground: Ground, session: Session, hall: Hall, count: int) -> None:
        self.ground, self.session, self.hall, self.count = ground, session, hall, count
        self.name = f"{session.id:x}-{next(_numbers):x}"
        self.key = hall.seats + self.name.encode()
        self.since = 0
        self._sent: Outcome | None = None

    # -- taking it ---------------------------------------------------------------------------

    async def take(self) -> RangeResult:
        """Sit down; what the whole hall looks like then is returned."""
        self._sent = self.ground.writes.begin(Txn((), (self._put(), Range(self.hall.everything))))
        try:
            result = await self._sent.settled()
        except LeaseNotFound as error:
            self.session.found_gone()
            raise self.session.loss(f"the seat {self.name}") from error
        self.since = result.revision
        board = board_of(result)
        self._check_count(board)
        return board

    def leaving(self) -> Put:
        """The write that says: done."""
        return self._put(is_leaving=True)

    def _put(self, *, is_leaving: bool = False) -> Put:
        present = Present(self.ground.identity, self.count, is_leaving)
        return Put(self.key, _present.encode(present), self.session.id)

    def _check_count(self, board: RangeResult) -> None:
        """Whoever has waited for the longest decides how many are needed."""
        first = self.hall.present(self.hall.waiting({kv.key: kv for kv in board.kvs})[0])
        if first.count != self.count:
            raise InvalidRequest(
                f"{first.identity} waits here for {first.count} participants, and this one for "
                f"{self.count}. Everyone has to give the same number."
            )

    # -- opening a round ---------------------------------------------------------------------

    async def wait_open(self, board: RangeResult) -> KeyValue:
        """Wait for a round with this seat in it."""
        hall, clock = self.hall, self.ground.clock
        async with aclosing(states(self.ground, hall.everything, known=board)) as boards:
            async for kvs in boards:
                while True:
                    try:
                        opened = await self.judge(kvs)
                        break
                    except StoreClosed:
                        raise
                    except (Unavailable, Indeterminate) as error:
                        # What was to be written holds only for the board that was seen, so that it is
                        # no different to write it again.
                        _log.info("waiting in the seat %s goes on: %s", self.name, error)
                        await clock.sleep(ASK_AGAIN_S)
                if opened is not None:
                    return opened
        raise AssertionError("states never end")

    async def judge(self, kvs: KeyValues) -> KeyValue | None:
        """The round this seat is in; None: none yet, and the board is going to change.

        Opens a round, or clears one away that is over, if that is up to this seat.
        """
        hall, write = self.hall, self.ground.write
        opened = kvs.get(hall.open)
        if opened is not None and self._is_in(opened):
            return opened
        mine = kvs.get(self.key)
        if mine is None or mine.create_revision != self.since:
            raise SessionLost(f"the seat {self.name} is gone: somebody deleted its key. Begin again.")
        if opened is not None:
            if hall.is_over(opened, kvs) and hall.waiting(kvs)[0].key == self.key:
                await write(Txn((unchanged(hall.open, opened),), (Delete(hall.open),)))
            return None
        if len(kvs) < self.count:
            return None
        waiting = [kv for kv in hall.waiting(kvs) if hall.present(kv).count == self.count]
        if len(waiting) < self.count or waiting[self.count - 1].key != self.key:
            return None
        data = _round.encode(_Round(tuple(self._member(kv) for kv in waiting[: self.count])))
        compares = (
            Compare.missing(hall.open),
            unchanged(hall.withdrawn, kvs.get(hall.withdrawn)),
            Compare.create_revision(self.key, "=", self.since),
        )
        result = await write(Txn(compares, (Put(hall.open, data),)))
        if not result.succeeded:
            return None
        return KeyValue(hall.open, data, result.revision, result.revision, 1)

    def _member(self, kv: KeyValue) -> Member:
        seat = kv.key.removeprefix(self.hall.seats).decode()
        return Member(seat, kv.create_revision, self.hall.present(kv).identity)

    def _is_in(self, opened: KeyValue) -> bool:
        return any(
            member.seat == self.name and member.since == self.since
            for member in self.hall.members(opened)
        )

    # -- giving it up ------------------------------------------------------------------------

    async def withdraw_unless_in(self) -> KeyValue | None:
        """Give it up, unless a round has it already: that round.

        Raises if the store cannot be told: then it is given up in the background.
        """
        assert self._sent is not None
        opened: KeyValue | None = None
        try:
            # Only now, if the time was over before: what is not written yet cannot be taken back.
            self.since = (await self._sent.settled()).revision
            while True:
                same = unchanged(self.hall.open, opened)
                result = await self.ground.write(
                    Txn((same,), self._withdrawing(), (Range(self.hall.open),))
                )
                if result.succeeded:
                    return None
                opened = found_first(result)
                if opened is not None and self._is_in(opened):
                    return opened
        except BaseException:
            self.withdraw()
            raise

    def withdraw(self) -> None:
        """Give it up, in the background, whatever has happened."""
        if self._sent is None:
            return
        if self._sent.is_over:
            self._taken(self._sent)
        else:
            self._sent.add_done_callback(self._taken)

    def _taken(self, sent: Outcome) -> None:
        error = sent.exception()
        if isinstance(error, Indeterminate):
            self.ground.tidying.remove(self.key, self.session, may_appear=True)
        elif error is None:
            # Also after the session was lost here: the store may not know that yet.
            outcome = self.ground.writes.begin(Txn((), self._withdrawing()))
            outcome.add_done_callback(self._withdrawn)

    def _withdrawn(self, outcome: Outcome) -> None:
        if isinstance(outcome.exception(), Unavailable | Indeterminate):
            self.ground.tidying.remove(self.key, self.session)

    def _withdrawing(self) -> tuple[Op, ...]:
        return Delete(self.key), Put(self.hall.withdrawn)


def board_of(result: TxnResult) -> RangeResult:
    """The whole hall, as a transaction that wrote one key found it."""
    board = result.results[1]
    assert isinstance(board, RangeResult)
    return board
