"""DoubleBarrier: a number of participants begin together and end together.

    import asyncio

    async def work(q: quoracy.Connection) -> None:
        async with q.double_barrier("phase", 2) as entered:    # waits until there are two
            assert len(entered.members) == 2
        assert not entered.missing                             # waited until both were done

    async with quoracy.connect("memory:") as q:
        await asyncio.gather(work(q), work(q))

What it promises
    * A round opens only if as many participants as are needed were present at the same moment.  A
      participant that dies, gives up or times out before that does not count, and the others continue
      to wait.
    * `TimedOut` from entering means that you are not in a round; otherwise you are, timed out or not.
    * Leaving waits until every member has left or is gone: a participant whose session ends, or whose
      block raises, does not keep the others waiting.  They find it in `entered.missing`.
    * A participant may wait for the next round at once; that round opens when this one is over.

What it does not promise: that every member still lives a moment later.  A member that dies after the
round opened is missing when the others leave, and not before.

How it lies in the store
    name/in/<session>-<number>    a participant, attached to its session's lease
    name/open                     the round: its members, each with the revision at which it came
    name/withdrawn                rewritten by every participant that gives up while it waits

    A round is opened by the participant that completes the number, and by no other: the youngest of
    those that are needed.  If that one dies before, the next view shows which one takes its place.  A
    round is opened only if `withdrawn` is as the opener has seen it, so a participant that gave up
    before is not in it.  A round whose members are all gone is deleted by the participant that has
    waited longest.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from types import TracebackType

import msgspec

from quoracy.client.codec import codec_of
from quoracy.client.compare_and_swap import key_now, range_at, unchanged
from quoracy.client.context import Context
from quoracy.client.held import Enterable, Held, Holding
from quoracy.client.in_flight import Outcome
from quoracy.client.key_follower import KeyValues, states, wait_for
from quoracy.client.session import Session
from quoracy.errors import (
    Indeterminate,
    InvalidRequest,
    LeaseNotFound,
    SessionLost,
    TimedOut,
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

__all__ = ["COUNT_MAX", "DoubleBarrier", "Entered", "Participant", "RoundKeys", "round_members"]

# Every participant watches the keys of every other.
COUNT_MAX = 1_000

_numbers = itertools.count(1)


class DoubleBarrier(Enterable["Entered"]):
    """A double barrier by name; one object may be shared, each entry is a participant.

    count: the number that enter together; all participants give the same.
    cancel_on_loss: when the own session is lost inside the block, cancel the body and raise `LockLost`;
        in coroutines only.  False: only `entered.lost` is set, and the block raises at its end.
    """

    def __init__(self, context: Context, name: str, count: int, *, cancel_on_loss: bool = True) -> None:
        super().__init__()
        if not 1 <= count <= COUNT_MAX:
            raise InvalidRequest(
                f"{count} participants in the double barrier {name}: give 1 to {COUNT_MAX:,}."
            )
        self.name, self.count = name, count
        self._context, self._keys = context, RoundKeys(context.key(name))
        self._cancel_on_loss = cancel_on_loss
        self._what = f"{count} in the double barrier {name}"

    async def enter(self, *, timeout: float | None = None) -> Entered:
        """Wait until the round opens.  The caller leaves it: `entered.leave()`.

        Raises `TimedOut`; `SessionLost` if the session ends meanwhile, and then the others may have
        entered with this participant, which they find missing.
        """
        context = self._context
        deadline = context.deadline(timeout)
        with context.wait_scope(f"a session for {self._what}", deadline):
            session = await context.session()
        participant = Participant(context, session, self._keys, self.count)
        try:
            if timeout == 0:
                found = await participant.register()
                opened = await participant.judge({kv.key: kv for kv in found.kvs})
                if opened is None:
                    raise TimedOut(self._what, timeout_s=0)
            else:
                with context.wait_scope(self._what, deadline, session):
                    opened = await participant.wait_open(await participant.register())
        except (TimedOut, InvalidRequest):
            late = await participant.withdraw_unless_in()
            if late is None:
                raise
            opened = late
        except BaseException:
            participant.withdraw()
            raise
        return Entered(context, participant, opened, name=self.name)

    def inside(
        self, *, timeout: float | None = None, leave_timeout: float | None = None
    ) -> Holding[Entered]:
        """A block between entering and leaving: `barrier.inside(timeout=5)`.

        At its end it waits for the others.  If it raises it leaves at once, and is missing for them.
        """
        return _Inside(
            lambda: self.enter(timeout=timeout),
            cancel_on_loss=self._cancel_on_loss,
            leave_timeout=leave_timeout,
        )

    async def participants(self) -> tuple[str, ...]:
        """The identities of the participants, waiting or inside, in order of arrival."""
        self._context.check()
        found = await self._context.store.range(KeyRange.prefix(self._keys.participants))
        ordered = sorted(found.kvs, key=lambda kv: kv.create_revision)
        return tuple(_record(kv).identity for kv in ordered)

    def _holding(self) -> Holding[Entered]:
        return self.inside()

    def __repr__(self) -> str:
        return f"<DoubleBarrier {self.name} of {self.count}>"


class Entered(Held):
    """A participant inside.  `token` is larger for each later entry of any participant.

    round: a number that is the same for all members of the round, and larger for each later round.
    members: the identities of all members of the round.
    missing: those that were gone without leaving; complete after `leave`.
    """

    def __init__(
        self, context: Context, participant: Participant, opened: KeyValue, *, name: str
    ) -> None:
        super().__init__(
            context,
            participant.session,
            name=name,
            key=participant.key,
            token=participant.since,
            what=f"the place in the double barrier {name}",
        )
        self._participant, self._opened = participant, opened
        members = round_members(opened)
        self._outstanding = list(reversed(members))
        self._is_over = False
        self.round = opened.create_revision
        self.members: tuple[str, ...] = tuple(member.identity for member in members)
        self.missing: tuple[str, ...] = ()

    async def leave(self, *, timeout: float | None = None) -> None:
        """Report that you are done, and wait until every member is done, or is gone.

        Raises `TimedOut`: you have left, and the others are not all done.  Raises `LockLost` or
        `SessionLost` if you were lost yourself.
        """
        if self._released:
            return
        self.check()
        context, participant = self._context, self._participant
        everything = participant.keys.everything
        deadline = context.deadline(timeout)
        try:
            ops = (participant.put(is_leaving=True), Range(everything))
            result = await context.write(Txn((self.guard(),), ops))
            if not result.succeeded:
                self.key_not_found()
                self.check()
            await wait_for(
                context,
                everything,
                lambda kvs: self._judge(kvs) or None,
                timeout=deadline,
                what=f"the others to leave the double barrier {self.name}",
                session=self._session,
                known=range_at(result, 1),
            )
        finally:
            await super().leave()

    async def withdraw(self) -> None:
        """Leave at once, without waiting for the others, for whom you are missing."""
        await super().leave()

    def release_txn(self) -> Txn:
        gone = Delete(self.key)
        if not self._is_over:
            return Txn((self.guard(),), (gone,))
        opened = self._participant.keys.open
        return Txn((unchanged(opened, self._opened),), (Delete(opened), gone), (gone,))

    def _was_lost(self, released: TxnResult) -> bool:
        # When the round is over another participant may have deleted it before.
        return not self._is_over and super()._was_lost(released)

    def _judge(self, kvs: KeyValues) -> bool:
        """Whether every member has left or is gone."""
        keys = self._participant.keys
        opened = kvs.get(keys.open)
        if opened is None or opened.create_revision != self.round:
            # Another participant saw that all had left, and deleted the round.  Members that were not
            # seen leaving, because history was compacted meanwhile, are not reported as missing.
            self._is_over = True
            return True
        # While one member is not done, the others need not be looked at.
        while self._outstanding:
            record = keys.record_of(self._outstanding[-1], kvs)
            if record is not None and not record.is_leaving:
                return False
            member = self._outstanding.pop()
            if record is None:
                self.missing += (member.identity,)
        self._is_over = True
        return True


class _Inside(Holding[Entered]):
    """The block between entering and leaving together."""

    def __init__(
        self,
        acquire: Callable[[], Awaitable[Entered]],
        *,
        cancel_on_loss: bool,
        leave_timeout: float | None,
    ) -> None:
        super().__init__(acquire, cancel_on_loss=cancel_on_loss)
        self._leave_timeout = leave_timeout

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        entered = self._held
        assert entered is not None
        if kind is None and entered.is_held:
            try:
                await entered.leave(timeout=self._leave_timeout)
            except BaseException as failure:
                await super().__aexit__(type(failure), failure, failure.__traceback__)
                raise
        else:
            await entered.withdraw()
        await super().__aexit__(kind, error, trace)


# -- the keys --------------------------------------------------------------------------------


class _Record(msgspec.Struct, frozen=True):
    """The value of a participant's key: who, the count it waits for, and whether it is done."""

    identity: str
    count: int
    is_leaving: bool = False


class _Member(msgspec.Struct, frozen=True, array_like=True):
    """A member of a round: the name of its key, the revision at which it came, and who it is."""

    name: str
    since: int
    identity: str


class _Round(msgspec.Struct, frozen=True):
    members: tuple[_Member, ...]


_records = codec_of(_Record)
_rounds = codec_of(_Round)


def _record(kv: KeyValue) -> _Record:
    return _records.decode(kv.key, kv.value)


def round_members(opened: KeyValue) -> tuple[_Member, ...]:
    return _rounds.decode(opened.key, opened.value).members


class RoundKeys:
    """The keys of one double barrier."""

    def __init__(self, key: bytes) -> None:
        self.participants = key + b"/in/"
        self.open, self.withdrawn = key + b"/open", key + b"/withdrawn"
        self.everything = KeyRange.prefix(key + b"/")

    def record_of(self, member: _Member, kvs: KeyValues) -> _Record | None:
        """The record of a member; None: it is gone."""
        kv = kvs.get(self.participants + member.name.encode())
        return _record(kv) if kv is not None and kv.create_revision == member.since else None

    def is_over(self, opened: KeyValue, kvs: KeyValues) -> bool:
        """Whether every member of a round has left or is gone."""
        records = (self.record_of(member, kvs) for member in round_members(opened))
        return all(record is None or record.is_leaving for record in records)

    def waiting(self, kvs: KeyValues) -> list[KeyValue]:
        """The participants that are in no round, the oldest first."""
        opened = kvs.get(self.open)
        members = () if opened is None else round_members(opened)
        inside = {self.participants + member.name.encode() for member in members}
        waiting = [
            kv
            for key, kv in kvs.items()
            if key.startswith(self.participants) and key not in inside and not _record(kv).is_leaving
        ]
        return sorted(waiting, key=lambda kv: kv.create_revision)


# -- one participant -------------------------------------------------------------------------


class Participant:
    """One participant, from its registration until it is in a round.

    If anything raises, its key is deleted: at once, in the background, or with the session.

    since: the revision at which it came; 0: it has not, as far as is known.
    """

    def __init__(self, context: Context, session: Session, keys: RoundKeys, count: int) -> None:
        self.context, self.session, self.keys, self.count = context, session, keys, count
        self.name = f"{session.id:x}-{next(_numbers):x}"
        self.key = keys.participants + self.name.encode()
        self.since = 0
        self._sent: Outcome | None = None

    async def register(self) -> RangeResult:
        """Put its key; returns all keys of the barrier at that revision."""
        ops = (self.put(), Range(self.keys.everything))
        self._sent = self.context.writes.begin(Txn((), ops))
        try:
            result = await self._sent.settled()
        except LeaseNotFound as error:
            self.session.lease_not_found()
            raise self.session.loss(f"the participant {self.name}") from error
        self.since = result.revision
        found = range_at(result, 1)
        # The participant that has waited longest decides the number.
        first = _record(self.keys.waiting({kv.key: kv for kv in found.kvs})[0])
        if first.count != self.count:
            raise InvalidRequest(
                f"{first.identity} waits here for {first.count} participants, and this one for "
                f"{self.count}. Everyone has to give the same number."
            )
        return found

    def put(self, *, is_leaving: bool = False) -> Put:
        """The write of its key."""
        record = _Record(self.context.identity, self.count, is_leaving)
        return Put(self.key, _records.encode(record), self.session.id)

    # -- opening a round ---------------------------------------------------------------------

    async def wait_open(self, found: RangeResult) -> KeyValue:
        """Wait for a round with this participant in it."""
        context, everything = self.context, self.keys.everything
        async with aclosing(states(context, everything, known=found)) as following:
            async for kvs in following:
                # Its writes are conditional on the view, so they may be repeated.
                opened = await context.retry(lambda: self.judge(kvs), self.name)  # noqa: B023
                if opened is not None:
                    return opened
        raise AssertionError("states never end")

    async def judge(self, kvs: KeyValues) -> KeyValue | None:
        """The round this participant is in; None: none yet, and a change will follow.

        Opens a round, or deletes one that is over, if that is up to this participant.
        """
        keys, write = self.keys, self.context.write
        opened = kvs.get(keys.open)
        if opened is not None and self._is_in(opened):
            return opened
        mine = kvs.get(self.key)
        if mine is None or mine.create_revision != self.since:
            raise SessionLost(f"the key {self.key!r} is gone: it was deleted by others. Begin again.")
        if opened is not None:
            if keys.is_over(opened, kvs) and keys.waiting(kvs)[0].key == self.key:
                await write(Txn((unchanged(keys.open, opened),), (Delete(keys.open),)))
            return None
        if len(kvs) < self.count:
            return None
        waiting = [kv for kv in keys.waiting(kvs) if _record(kv).count == self.count]
        if len(waiting) < self.count or waiting[self.count - 1].key != self.key:
            return None
        data = _rounds.encode(_Round(tuple(self._member(kv) for kv in waiting[: self.count])))
        compares = (
            Compare.missing(keys.open),
            unchanged(keys.withdrawn, kvs.get(keys.withdrawn)),
            Compare.create_revision(self.key, "=", self.since),
        )
        result = await write(Txn(compares, (Put(keys.open, data),)))
        if not result.succeeded:
            return None
        return KeyValue(keys.open, data, result.revision, result.revision, 1)

    def _member(self, kv: KeyValue) -> _Member:
        name = kv.key.removeprefix(self.keys.participants).decode()
        return _Member(name, kv.create_revision, _record(kv).identity)

    def _is_in(self, opened: KeyValue) -> bool:
        return (self.name, self.since) in {(each.name, each.since) for each in round_members(opened)}

    # -- giving up ---------------------------------------------------------------------------

    async def withdraw_unless_in(self) -> KeyValue | None:
        """Delete its key, unless it is in a round already: that round.

        Raises if the store does not answer: then the key is deleted in the background.
        """
        assert self._sent is not None
        opened: KeyValue | None = None
        try:
            # The registration may not be answered yet; the key can be deleted only afterwards.
            self.since = (await self._sent.settled()).revision
            while True:
                same = unchanged(self.keys.open, opened)
                txn = Txn((same,), self._withdrawal(), (Range(self.keys.open),))
                result = await self.context.write(txn)
                if result.succeeded:
                    return None
                opened = key_now(result)
                if opened is not None and self._is_in(opened):
                    return opened
        except BaseException:
            self.withdraw()
            raise

    def withdraw(self) -> None:
        """Delete its key in the background."""
        if self._sent is None:
            return
        if self._sent.is_over:
            self._registered(self._sent)
        else:
            self._sent.add_done_callback(self._registered)

    def _registered(self, sent: Outcome) -> None:
        error = sent.exception()
        if isinstance(error, Indeterminate):
            self.context.cleanup.remove(self.key, self.session, may_appear=True)
        elif error is None:
            # Also if the session was lost here: the store may not know that yet.
            outcome = self.context.writes.begin(Txn((), self._withdrawal()))
            outcome.add_done_callback(self._withdrawn)

    def _withdrawn(self, outcome: Outcome) -> None:
        if isinstance(outcome.exception(), Unavailable | Indeterminate):
            self.context.cleanup.remove(self.key, self.session)

    def _withdrawal(self) -> tuple[Op, ...]:
        return Delete(self.key), Put(self.keys.withdrawn)
