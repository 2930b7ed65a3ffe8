"""DoubleBarrier: a number of participants begin together and end together.

    import asyncio

    async def work(q: quoracy.Connection) -> None:
        async with q.double_barrier("phase", 2) as entered:    # waits until two are there
            assert len(entered.members) == 2
        assert not entered.missing                             # waited until both were done

    async with quoracy.connect("memory:") as q:
        await asyncio.gather(work(q), work(q))

What it promises
    * Nobody enters unless as many as are needed had a seat at the same moment.  Whoever dies, gives up
      or is timed out before the round opens does not count, and the others go on waiting.
    * `TimedOut` from entering means that nobody counts on you; otherwise you are in, timed out or not.
    * Leaving waits until everyone has left or is gone: a participant whose session ends, or whose block
      raises, holds nobody up.  The others find it in `entered.missing`.
    * A seat for the next round can be taken at once; that round opens when this one is over.

What it does not promise: that everyone who entered still lives a moment later.  Whoever dies after the
round opened is missing when the others leave, and not before.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import aclosing
from types import TracebackType

from quoracy.client.compare_and_swap import unchanged
from quoracy.client.context import Ground, Patience
from quoracy.client.held import Enterable, Held, Holding
from quoracy.client.key_follower import KeyValues, states
from quoracy.client.seats import Hall, Seat, board_of
from quoracy.errors import InvalidRequest, TimedOut
from quoracy.store.model import Delete, KeyRange, KeyValue, Range, RangeResult, Txn, TxnResult

__all__ = ["COUNT_MAX", "DoubleBarrier", "Entered"]

# Every participant is told of every other.
COUNT_MAX = 1_000


class DoubleBarrier(Enterable["Entered"]):
    """A double barrier by name; one object may be shared, each is a participant.

    count: how many enter together; everyone gives the same.
    cancel_on_loss: when the own session is lost inside the block, cancel the body and raise `LockLost`;
        in coroutines only.  False: only `entered.lost` is set, and the block raises at its end.
    """

    def __init__(self, ground: Ground, name: str, count: int, *, cancel_on_loss: bool = True) -> None:
        super().__init__()
        if not 1 <= count <= COUNT_MAX:
            raise InvalidRequest(
                f"{count} participants in the double barrier {name}: give 1 to {COUNT_MAX:,}."
            )
        self.name, self.count = name, count
        self._ground, self._hall = ground, Hall(ground.key(name))
        self._cancel_on_loss = cancel_on_loss
        self._what = f"{count} in the double barrier {name}"

    async def enter(self, *, timeout: float | None = None) -> Entered:
        """Wait until as many as are needed are there.  Whoever enters so leaves: `entered.leave()`.

        Raises `TimedOut`; `SessionLost` if the session ends meanwhile, and then the others may have
        entered counting on this one: they find it missing.
        """
        ground = self._ground
        patience = Patience(ground.clock, timeout)
        with ground.waiting(f"a session for {self._what}", patience):
            session = await ground.session()
        seat = Seat(ground, session, self._hall, self.count)
        try:
            if timeout == 0:
                opened = await self._open_now(seat)
            else:
                with ground.waiting(self._what, patience, session):
                    opened = await seat.wait_open(await seat.take())
        except (TimedOut, InvalidRequest):
            late = await seat.withdraw_unless_in()
            if late is None:
                raise
            opened = late
        except BaseException:
            seat.withdraw()
            raise
        return Entered(ground, seat, opened, name=self.name)

    def inside(
        self, *, timeout: float | None = None, leave_timeout: float | None = None
    ) -> Holding[Entered]:
        """A block between entering and leaving: `barrier.inside(timeout=5)`.

        At its end it waits for the others, unless it raises: then it leaves at once, and is missing.
        """
        return _Inside(
            lambda: self.enter(timeout=timeout),
            cancel_on_loss=self._cancel_on_loss,
            leave_timeout=leave_timeout,
        )

    async def participants(self) -> tuple[str, ...]:
        """Who has a seat, waiting or inside, in the order in which they came."""
        self._ground.check()
        found = await self._ground.store.range(KeyRange.prefix(self._hall.seats))
        ordered = sorted(found.kvs, key=lambda kv: kv.create_revision)
        return tuple(self._hall.present(kv).identity for kv in ordered)

    async def _open_now(self, seat: Seat) -> KeyValue:
        board = await seat.take()
        opened = await seat.judge({kv.key: kv for kv in board.kvs})
        if opened is None:
            raise TimedOut(self._what, timeout_s=0)
        return opened

    def _holding(self) -> Holding[Entered]:
        return self.inside()

    def __repr__(self) -> str:
        return f"<DoubleBarrier {self.name} of {self.count}>"


class Entered(Held):
    """One participant inside.  `token` is larger for each later entry of anybody.

    round: a number that is the same for everyone in the round, and larger for each later round.
    members: the identities of everyone in the round.
    missing: those who went away without leaving: known in full after `leave`.
    """

    def __init__(self, ground: Ground, seat: Seat, opened: KeyValue, *, name: str) -> None:
        super().__init__(
            ground,
            seat.session,
            name=name,
            key=seat.key,
            token=seat.since,
            what=f"the place in the double barrier {name}",
        )
        self._seat, self._opened = seat, opened
        members = seat.hall.members(opened)
        self._outstanding = list(reversed(members))
        self._is_over = False
        self.round = opened.create_revision
        self.members: tuple[str, ...] = tuple(member.identity for member in members)
        self.missing: tuple[str, ...] = ()

    async def leave(self, *, timeout: float | None = None) -> None:
        """Say that you are done, and wait until everyone is, or is gone.

        Raises `TimedOut`: you have left, and the others are not all done.  Raises `LockLost` or
        `SessionLost` if you were lost yourself.
        """
        if self._released:
            return
        self.check()
        ground, seat = self._ground, self._seat
        patience = Patience(ground.clock, timeout)
        try:
            result = await ground.write(
                Txn((self.guard(),), (seat.leaving(), Range(seat.hall.everything)))
            )
            if not result.succeeded:
                self.found_gone()
                self.check()
            board = board_of(result)
            what = f"the others to leave the double barrier {self.name}"
            if timeout == 0:
                if not self._judge({kv.key: kv for kv in board.kvs}):
                    raise TimedOut(what, timeout_s=0)
            else:
                with ground.waiting(what, patience, self._session):
                    await self._wait_over(board)
        except BaseException:
            await super().leave()
            raise
        await super().leave()

    async def withdraw(self) -> None:
        """Go away at once, without waiting for anybody: the others find you missing."""
        await super().leave()

    def releasing(self) -> Txn:
        gone = Delete(self.key)
        if not self._is_over:
            return Txn((self.guard(),), (gone,))
        hall = self._seat.hall
        return Txn((unchanged(hall.open, self._opened),), (Delete(hall.open), gone), (gone,))

    def was_gone(self, released: TxnResult) -> bool:
        # When all is over somebody else may have closed the round, and that is as good.
        return not self._is_over and super().was_gone(released)

    async def _wait_over(self, board: RangeResult) -> None:
        hall = self._seat.hall
        async with aclosing(states(self._ground, hall.everything, known=board)) as boards:
            async for kvs in boards:
                if self._judge(kvs):
                    return

    def _judge(self, kvs: KeyValues) -> bool:
        """Whether everyone has left or is gone."""
        hall = self._seat.hall
        opened = kvs.get(hall.open)
        if opened is None or opened.create_revision != self.round:
            # Somebody who saw that everyone had left has closed the round.  Who had left before is
            # known; of the others nothing was seen because history was compacted meanwhile.
            self._is_over = True
            return True
        # As long as one is not done it does not matter which: everyone else is looked at later.
        while self._outstanding:
            seat = hall.sitting(self._outstanding[-1], kvs)
            if seat is not None and not seat.is_leaving:
                return False
            member = self._outstanding.pop()
            if seat is None:
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
        failure: BaseException | None = None
        if kind is None and entered.is_held:
            try:
                await entered.leave(timeout=self._leave_timeout)
            except BaseException as raised:  # noqa: BLE001 (raised below, once nothing is left)
                kind, error, failure = type(raised), raised, raised
        was_ours = self._scope.left(kind)
        await entered.withdraw()
        if was_ours:
            assert self._scope.error is not None
            raise self._scope.error from error
        if failure is not None:
            raise failure
        if kind is None and entered.error is not None:
            raise entered.error
