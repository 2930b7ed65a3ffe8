"""Singleton: work that runs in one process at a time, and in another when that one is gone.

    async with quoracy.connect("memory:") as q:

        @q.singleton("nightly")
        async def nightly(term: quoracy.Term) -> int:      # the parameter may be left out
            return await write_reports(fence=term.token)

        print(await nightly())                             # waits for its turn, then runs

What it promises
    * The work runs while its process leads the election of that name, so in one process at a time, as
      far as the store is concerned.  `term.token` is larger for each later run, in any process: pass it
      to whatever an older run must not change any more.
    * When leadership is lost the work is cancelled, before another process can lead; then this process
      becomes a candidate again.  Work that takes time to be cancelled may overlap with the next run:
      the token is for that.
    * When the work returns, the process resigns, and the result is returned.  The next candidate then
      runs it: to run something once for all, use `Once`.
    * An exception of the work is raised, after resigning; with `restart=True` the process becomes a
      candidate again after a pause that grows.
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine
from random import Random
from typing import TypeVar, cast

from quoracy.client.context import RETRY_S, Context
from quoracy.client.held import Holding
from quoracy.client.recipes.election import Election, Leader, Term
from quoracy.errors import Indeterminate, InvalidRequest, LeaseLost, StoreClosed, Unavailable

__all__ = ["Singleton"]

_log = logging.getLogger(__name__)

R = TypeVar("R")

RESTART_S_FIRST = 1.0
RESTART_S_MAX = 60.0


class Singleton:
    """Work by name; one object may be shared, and one run goes on at a time.

    restart: when the work raises, log it, resign, and become a candidate again after a pause; the pause
        doubles from `restart_first` to `restart_max` seconds, and begins anew after a run that was
        longer than `restart_max`.
    """

    def __init__(
        self,
        context: Context,
        name: str,
        *,
        restart: bool = False,
        restart_first: float = RESTART_S_FIRST,
        restart_max: float = RESTART_S_MAX,
    ) -> None:
        if not 0 < restart_first <= restart_max:
            raise InvalidRequest(
                f"restart_first is {restart_first} and restart_max {restart_max}. Give seconds, more "
                "than 0, the first no longer than the last."
            )
        self.name = name
        self._context, self._election = context, Election(context, name)
        self._restart, self._first_s, self._max_s = restart, restart_first, restart_max
        self._rng = Random()

    def __call__(
        self, work: Callable[[Term], Awaitable[R]] | Callable[[], Awaitable[R]]
    ) -> Callable[[], Coroutine[object, None, R]]:
        """As a decorator: calling the function runs it as `run` does."""
        _takes_term(work)

        @functools.wraps(work)
        async def run() -> R:
            return await self.run(work)

        # It takes no parameter, whether or not the work does.
        run.__signature__ = inspect.Signature()  # type: ignore[attr-defined]
        return run

    async def run(
        self,
        work: Callable[[Term], Awaitable[R]] | Callable[[], Awaitable[R]],
        *,
        timeout: float | None = None,
    ) -> R:
        """Wait to be elected, run the work, resign, and return its result; after a loss, begin again.

        work: a coroutine function; with `quoracy.sync`, a plain one.  If it takes a parameter, that is
            the term, with the fencing token.
        timeout: how long to wait to be elected, each time; raises `TimedOut`.

        A result that comes after leadership was lost does not count: the next leader runs it as well.
        """
        run = work if _takes_term(work) else lambda _: cast("Callable[[], Awaitable[R]]", work)()
        pause_s, has_led = self._first_s, False
        clock = self._context.clock
        while True:
            term: Term | None = None
            began = 0.0
            try:
                async with self._lead(timeout, has_led=has_led) as term:
                    began, has_led = clock.now(), True
                    return await cast("Callable[[Term], Awaitable[R]]", run)(term)
            except LeaseLost as error:
                if term is None or term.error is None:
                    raise  # the loss of something that the work held
                _log.warning("%s stops here, and stands for election again: %s", self.name, error)
                continue
            except Exception:
                if term is None or not self._restart:
                    raise
                _log.exception("%s failed, and stands for election again", self.name)
            if clock.now() - began > self._max_s:
                pause_s = self._first_s
            await clock.sleep(pause_s * self._rng.uniform(0.5, 1.0))
            pause_s = min(pause_s * 2, self._max_s)

    async def runner(self) -> Leader | None:
        """The process that runs it now, if there is one."""
        return await self._election.leader()

    def _lead(self, timeout: float | None, *, has_led: bool) -> Holding[Term]:
        deadline = self._context.deadline(timeout)

        async def elected() -> Term:
            while True:
                try:
                    return await self._election.campaign(timeout=deadline.left)
                except StoreClosed:
                    raise
                except (Unavailable, Indeterminate) as error:
                    # A process that has led waits for the store; at the beginning the error is raised.
                    if not has_led:
                        raise
                    _log.info("%s waits for the store: %s", self.name, error)
                with self._context.wait_scope(f"the store, to run {self.name}", deadline):
                    await self._context.clock.sleep(RETRY_S)

        return Holding(elected)

    def __repr__(self) -> str:
        return f"<Singleton {self.name}>"


def _takes_term(work: Callable[..., object]) -> bool:
    """Whether the work takes the term.  Raises `InvalidRequest` if it takes anything else."""
    required = [
        parameter
        for parameter in inspect.signature(work).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if len(required) > 1 or any(parameter.kind is parameter.KEYWORD_ONLY for parameter in required):
        names = ", ".join(parameter.name for parameter in required)
        raise InvalidRequest(
            f"{work!r} takes {names}; a singleton's work takes the term, or nothing. "
            "Use functools.partial for the rest."
        )
    return bool(required)
