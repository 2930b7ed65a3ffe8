"""A voter whose votes are saved before anyone hears of them, whoever drives it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import ClassVar

from quoracy.errors import Unavailable
from quoracy.membership.elections.interface import Assumptions
from quoracy.membership.elections.terms import TERMS_ASSUMPTIONS, Terms, TermsSettings
from quoracy.membership.elections.vote import SaveVote, VoteStorage
from quoracy.membership.machine import Address, Effect, Tell

__all__ = ["MemoryVote", "Persisted"]


class MemoryVote:
    """A storage that lasts as long as this object: for simulations and tests.

    >>> storage = MemoryVote()
    >>> storage.save(SaveVote(1, "a"))
    >>> storage.load()
    SaveVote(term=1, voted_for='a')
    """

    def __init__(self) -> None:
        self._vote: SaveVote | None = None

    def save(self, vote: SaveVote) -> None:
        self._vote = vote

    def load(self) -> SaveVote | None:
        return self._vote


class Persisted:
    """`Terms` on a storage.  Takes up what was saved; saves before it returns any effect.

    A save that fails is raised to the driver, and every call after it raises `Unavailable`: this voter
    has decided what is not written down.  Make a new one when the storage works again.

    The storage is called in between, so a slow one holds up the caller.  Where that matters, drive
    `Terms` itself and carry out its effects in their order.

    >>> storage = MemoryVote()
    >>> voter = Persisted("a", ["a"], storage=storage, rng=random.Random(1))
    >>> _ = voter.start(now=0.0)
    >>> voter.tick(now=voter.next_due)
    [Tell(event=LeaderElected(leader='a', term=1))]
    >>> storage.load()
    SaveVote(term=1, voted_for='a')
    """

    assumptions: ClassVar[Assumptions] = TERMS_ASSUMPTIONS

    def __init__(
        self,
        name: str,
        voters: Iterable[str],
        *,
        storage: VoteStorage,
        rng: random.Random,
        settings: TermsSettings | None = None,
    ) -> None:
        self._terms = Terms(name, voters, rng=rng, settings=settings, saved=storage.load())
        self._storage = storage
        self._failed: Exception | None = None
        self.next_due = self._terms.next_due

    @property
    def name(self) -> str:
        return self._terms.name

    @property
    def leader(self) -> str | None:
        """Who leads in this term, as far as this peer knows."""
        return self._terms.leader

    @property
    def term(self) -> int:
        """The newest term this peer knows of: the fencing token, if it leads."""
        return self._terms.term

    @property
    def is_leader(self) -> bool:
        return self._failed is None and self._terms.is_leader

    @property
    def confirmed_until(self) -> float:
        """As of `Terms`: until when no other can lead, if this peer does."""
        return self._terms.confirmed_until

    def start(self, now: float) -> list[Effect]:
        """As of `Terms`."""
        return self._saved(lambda: self._terms.start(now))

    def tick(self, now: float) -> list[Effect]:
        """As of `Terms`."""
        return self._saved(lambda: self._terms.tick(now))

    def receive(self, data: bytes, sender: Address, now: float) -> list[Effect]:
        """As of `Terms`."""
        return self._saved(lambda: self._terms.receive(data, sender, now))

    def receive_stream(self, data: bytes, sender: Address, now: float) -> list[Effect]:
        """As of `Terms`."""
        return self._saved(lambda: self._terms.receive_stream(data, sender, now))

    def unreachable(self, to: Address, now: float) -> list[Effect]:
        """As of `Terms`."""
        return self._saved(lambda: self._terms.unreachable(to, now))

    def suspect(self, peer: str, now: float) -> list[Effect]:
        """As of `Terms`."""
        return self._saved(lambda: self._terms.suspect(peer, now))

    def _saved(self, call: Callable[[], list[Effect]]) -> list[Effect]:
        if self._failed is not None:
            raise Unavailable(
                f"{self.name} votes no more: a vote could not be saved ({self._failed}). Repair the "
                "storage, then start a new voter on it."
            )
        effects = call()
        self.next_due = self._terms.next_due
        rest: list[Effect] = []
        for effect in effects:
            if isinstance(effect, Tell) and isinstance(effect.event, SaveVote):
                try:
                    self._storage.save(effect.event)
                except Exception as error:
                    self._failed = error
                    raise
            else:
                rest.append(effect)
        return rest
