"""Linearizable reads: the question to the cluster for its revision, and whether this node is serving.

A linearizable read must see every write that was acknowledged before it came.  So the cluster is asked
for its revision (a linearizable read of its own, answered by a majority), and the read goes on when the
replica has that revision.  One question serves all reads that came before it was *asked*; those that
come while it is on its way wait for the next.

Invariants
    * One question is on its way at a time.  It is asked every `IDLE_S` even if no read waits for it, so
      that a node which has lost the cluster notices by itself.
    * Not serving: no question was answered for `DOUBT_S`, although asked.  Reads that wait then fail at
      once, and so does whatever comes, until a question is answered and the replica has what the answer
      said.
    * The verdict changes only by what was asked and answered here: a process that stood still for an
      hour asks before it believes anything.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from quoracy.clock import Clock
from quoracy.errors import ProtocolError, QuoracyError, Rejected, StoreClosed, Unavailable

__all__ = ["ASK_S", "DOUBT_S", "IDLE_S", "Serving"]

_log = logging.getLogger(__name__)
_log.addHandler(logging.NullHandler())

IDLE_S = 0.5
# A question that is not answered within this is asked again, of another member.
ASK_S = 1.0
DOUBT_S = 2.5
# Between questions that fail at once.
_AGAIN_S = 0.1


class Serving:
    """The question, its answers, and what follows from them."""

    def __init__(
        self,
        *,
        ask: Callable[[], Awaitable[int]],
        reach: Callable[[int], Awaitable[None]],
        elsewhere: Callable[[], None],
        went_back: Callable[[int], None],
        applied: Callable[[], int],
        clock: Clock,
    ) -> None:
        """`ask` gives the cluster's revision; `reach` returns when the replica has one; `elsewhere`
        is called when a member did not answer; `went_back` when the cluster has less than it had."""
        self._ask, self._reach, self._elsewhere = ask, reach, elsewhere
        self._went_back, self._applied = went_back, applied
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._next: asyncio.Future[int] | None = None  # answered by the question after this one
        self._wanted = asyncio.Event()
        self._listeners: dict[object, Callable[[bool], None]] = {}
        self._task: asyncio.Task[None] | None = None
        self._failing_since: float | None = None
        self._behind: tuple[int, float] | None = None  # what the replica lacks, and since when
        self.is_serving = False
        self.reason = "the cluster was not asked yet"
        self.newest = 0  # the cluster's, as far as is known
        self._proved_at = clock.now()

    def start(self) -> None:
        """Begin to ask; what is here was read from the cluster just now."""
        self._note_proof(self._clock.now(), self._applied())
        self._task = asyncio.create_task(self._run(), name="quoracy-serving")
        self._task.add_done_callback(self._over)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self._fail(StoreClosed())

    @property
    def is_in_doubt(self) -> bool:
        """Whether there may be more than is here, for longer than it takes to ask.

        Also right after a process that stood still goes on, before it has asked anybody.
        """
        return not self.is_serving or self._clock.now() - self._proved_at > DOUBT_S + IDLE_S

    @property
    def stale_s(self) -> float:
        return max(self._clock.now() - self._proved_at, 0.0) if self.is_in_doubt else 0.0

    def check(self) -> None:
        """Raises `Unavailable` while not serving."""
        if not self.is_serving:
            raise Unavailable(f"etcdserver: no leader ({self.reason}). Try again later.")

    async def newest_revision(self) -> int:
        """The cluster's revision, as of a question that was asked after this call."""
        # Shielded: a caller that is cancelled must not take it from the others.
        return await asyncio.shield(self.next_answer())

    def next_answer(self) -> asyncio.Future[int]:
        """`newest_revision`, shared by all callers: it must not be cancelled."""
        self.check()
        if self._next is None:
            self._next = self._loop.create_future()
            self._wanted.set()
        return self._next

    def subscribe(self, changed: Callable[[bool], None]) -> Callable[[], None]:
        key = object()
        self._listeners[key] = changed

        def unsubscribe() -> None:
            self._listeners.pop(key, None)

        return unsubscribe

    # -- asking ------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            if not self._wanted.is_set():
                try:
                    async with asyncio.timeout(IDLE_S):
                        await self._wanted.wait()
                except TimeoutError:
                    pass  # no read waits for it: it is time to ask all the same
            asked_for, self._next = self._next, None
            self._wanted.clear()
            try:
                await self._answer(asked_for)
            except BaseException:
                if asked_for is not None and not asked_for.done():
                    asked_for.cancel()
                raise

    async def _answer(self, asked_for: asyncio.Future[int] | None) -> None:
        """Ask until there is an answer, or there is reason to doubt that one will come."""
        while True:
            asked_at, known = self._clock.now(), self._applied()
            try:
                revision = await self._ask()
                if revision < known:
                    self._went_back(revision)
                    raise Unavailable(
                        f"the cluster is at revision {revision} and was at {known} before: it was "
                        "restored or replaced"
                    )
                self.note(revision)
                if not self.is_serving:
                    async with asyncio.timeout(ASK_S):
                        await self._reach(revision)
                self._check_moving(asked_at, revision)
            except (Unavailable, Rejected, ProtocolError, TimeoutError) as error:
                self._note_failure(asked_at, error)
                if not self.is_serving:
                    if asked_for is not None and not asked_for.done():
                        asked_for.set_exception(Unavailable(f"etcdserver: no leader ({self.reason})."))
                        asked_for.exception()  # the callers may be gone
                    return
                await self._clock.sleep(_AGAIN_S)
                continue
            self._note_proof(asked_at, revision)
            if asked_for is not None and not asked_for.done():
                asked_for.set_result(revision)
            return

    def _check_moving(self, now: float, revision: int) -> None:
        """A replica that for long lacks what the cluster has is cut off from its changes."""
        applied = self._applied()
        if self._behind is not None and applied >= self._behind[0]:
            self._behind = None
        if self._behind is None:
            if applied < revision:
                self._behind = (revision, now)
            return
        wanted, since = self._behind
        if now - since >= ASK_S:
            self._behind = None
            raise Unavailable(
                f"this node is at revision {applied} and should have been at {wanted} for "
                f"{now - since:.1f} s"
            )

    def note(self, revision: int) -> None:
        """The cluster has at least this revision: it said so in another answer."""
        self.newest = max(self.newest, revision)

    def _note_proof(self, asked_at: float, revision: int) -> None:
        self._proved_at, self._failing_since = asked_at, None
        self.note(revision)
        if not self.is_serving:
            self.is_serving, self.reason = True, ""
            _log.info("serving: the cluster answers, and this node has all of it")
            self._tell()

    def _note_failure(self, asked_at: float, error: BaseException) -> None:
        self.reason = str(error) or "the replica did not catch up in time"
        if self._failing_since is None:
            self._failing_since = asked_at
        self._elsewhere()
        if self.is_serving and self._clock.now() - self._failing_since >= DOUBT_S:
            self.is_serving = False
            _log.warning(
                "not serving, neither writes nor linearizable reads: no answer from a majority of the "
                "cluster for %.1f s: %s",
                self._clock.now() - self._failing_since,
                self.reason,
            )
            self._fail(Unavailable(f"etcdserver: no leader ({self.reason})."))
            self._tell()

    def _tell(self) -> None:
        for changed in list(self._listeners.values()):
            changed(self.is_serving)

    def _fail(self, error: QuoracyError) -> None:
        waiting, self._next = self._next, None
        if waiting is not None and not waiting.done():
            waiting.set_exception(error)
            waiting.exception()  # the callers may be gone

    def _over(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("asking the cluster failed", exc_info=error)
            self.is_serving, self.reason = False, f"a defect of this node: {error!r}"
            self._fail(Unavailable(self.reason))
            self._tell()
