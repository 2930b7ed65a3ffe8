"""Singleton: run a coroutine on one process of many, and on another when that one is gone.

    async with quoracy.connect("memory:") as q:

        @q.singleton("nightly")
        async def nightly(term: quoracy.Term) -> int:      # the parameter may be left out
            return await write_reports(fence=term.token)

        print(await nightly())                             # waits for its turn, then runs

What it promises
    * The work runs while its process leads the election of that name, so on one process at a time, as
      far as the store is concerned.  `term.token` is larger for each later run, wherever it is: give it
      to whatever must not be touched by a run that was overtaken.
    * When leadership is lost the work is cancelled, before anybody else can lead; then this process
      stands for election again.  Work that takes its time to be cancelled may overlap with the next
      run: that is what the token is for.
    * When the work returns, the process steps down, and its result is returned.  The next process in
      line runs it then: to run something once for all, use `Once`.
    * An exception of the work is raised, after stepping down; with `restart=True` the process stands
      again after a pause that grows.
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine
from random import Random
from typing import TypeVar, cast

from quoracy.client.context import Ground, Patience
from quoracy.client.held import Holding
from quoracy.client.recipes.election import Election, Leader, Term
from quoracy.errors import Indeterminate, InvalidRequest, LeaseLost, StoreClosed, Unavailable

__all__ = ["Singleton"]

_log = logging.getLogger(__name__)

R = TypeVar("R")

_ASK_AGAIN_S = 0.5
RESTART_S_FIRST = 1.0
RESTART_S_MAX = 60.0


class Singleton:
    """Work by name; one object may be shared, and one run goes on at a time.

    restart: when the work raises, log it, step down, and stand again after a pause; the pause doubles
        from `restart_first` to `restart_max` seconds, and begins anew after a run that was longer than
        `restart_max`.
    """

    def __init__(
        self,
        ground: Ground,
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
        self._ground, self._election = ground, Election(ground, name)
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

        # What it takes now is nothing, whatever it took before.
        run.__signature__ = inspect.Signature()  # type: ignore[attr-defined]
        return run

    async def run(
        self,
        work: Callable[[Term], Awaitable[R]] | Callable[[], Awaitable[R]],
        *,
        timeout: float | None = None,
    ) -> R:
        """Wait to be elected, run the work, step down, return its result; on loss, all over again.

        work: a coroutine function; with `quoracy.sync`, a plain one.  If it takes a parameter, that is
            the term, with the fencing token.
        timeout: how long to wait to be elected, each time; raises `TimedOut`.

        A result that comes after leadership was lost does not count: whoever leads now runs it as well.
        """
        takes_term = _takes_term(work)
        pause_s, has_led = self._first_s, False
        clock = self._ground.clock
        while True:
            term: Term | None = None
            began = 0.0
            try:
                async with self._lead(timeout, has_led=has_led) as term:
                    began, has_led = clock.now(), True
                    if takes_term:
                        return await cast("Callable[[Term], Awaitable[R]]", work)(term)
                    return await cast("Callable[[], Awaitable[R]]", work)()
            except LeaseLost as error:
                if term is None or term.error is None:
                    raise  # not this leadership, but something of the work's own
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
        """Who runs it now, if anybody does."""
        return await self._election.leader()

    def _lead(self, timeout: float | None, *, has_led: bool) -> Holding[Term]:
        patience = Patience(self._ground.clock, timeout)

        async def elected() -> Term:
            while True:
                try:
                    return await self._election.campaign(timeout=patience.left)
                except StoreClosed:
                    raise
                except (Unavailable, Indeterminate) as error:
                    # Whoever has led waits for the store to be there again; whoever begins is told.
                    if not has_led:
                        raise
                    _log.info("%s waits for the store: %s", self.name, error)
                with self._ground.waiting(f"the store, to run {self.name}", patience):
                    await self._ground.clock.sleep(_ASK_AGAIN_S)

        return Holding(elected)

    def __repr__(self) -> str:
        return f"<Singleton {self.name}>"


def _takes_term(work: Callable[..., object]) -> bool:
    """Whether work wants the term.  Raises `InvalidRequest` for what cannot be called."""
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
