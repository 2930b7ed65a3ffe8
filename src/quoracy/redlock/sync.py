"""Generated: Redlock for threads.

Do not change it by hand: run `python -m quoracy.threads.generator`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Never

from quoracy.clock import Clock
from quoracy.errors import LockLost
from quoracy.redlock.held import Held as AsyncHeld
from quoracy.redlock.lock import Lock as AsyncLock
from quoracy.redlock.lock import Redlock as AsyncRedlock
from quoracy.redlock.quorum import DRIFT_FACTOR
from quoracy.threads.portal import CLOSE_S, Portal
from quoracy.threads.proxies import Attribute, Block, BlockProxy, ConnectionProxy, Event, Proxy


class Redlock(ConnectionProxy[AsyncRedlock]):
    """Locks on one or more independent Redis servers, three or five as a rule.

    In coroutines (with `quoracy.redlock.sync`, without `async` and `await`):

        async with Redlock(servers) as redlock:  # ["redis://10.0.0.1:6379", ...]
            async with redlock.lock("reports/nightly", ttl=10).hold(timeout=5) as held:
                held.check()
                await write_report()

    servers: a URL for each: redis://, rediss:// or unix://, with what the redis package takes in them.
    namespace: what is put before every name, with a slash.
    server_timeout: how many seconds to wait for one server; a third of any time to live at most, and
        better much less: the time that was granted runs meanwhile.
    retry_delay: the pause between two attempts, in seconds: half to one and a half times this, at
        random, so that contenders fall out of step.
    drift_factor: by how much clocks may run apart, as a share of the time to live.
    connections_max: how many connections to each server, and so how many requests at once.
    clock, rng: where time and random pauses come from.
    """

    def __init__(
        self,
        servers: Sequence[str],
        *,
        namespace: str | None = None,
        server_timeout: float = 0.1,
        retry_delay: float = 0.1,
        drift_factor: float = DRIFT_FACTOR,
        connections_max: int = 50,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        it = AsyncRedlock(
            servers,
            namespace=namespace,
            server_timeout=server_timeout,
            retry_delay=retry_delay,
            drift_factor=drift_factor,
            connections_max=connections_max,
            clock=clock,
            rng=rng,
        )
        super().__init__(Portal(), it)
        self._portal.open(lambda: it, CLOSE_S + 4 * server_timeout)

    def close(self) -> None:
        """Release what is held, finish what was begun, disconnect.  A second time does nothing."""
        self._portal.check_process()
        super().close()

    def lock(
        self, name: str, *, ttl: float = 10.0, renew: bool = True, hold_max: float | None = None
    ) -> Lock:
        """A lock with this name; nothing is sent before it is acquired.

        ttl: for how many seconds servers grant it.  It is also how long others wait if the holder dies.
        renew: extend it automatically, every third of the time to live, for as long as it is held.
        hold_max: after how many seconds it is lost however often it is extended; None is never.
        cancel_on_loss: cancel the body of the block when it is lost; in coroutines only.  Otherwise
            only `held.lost` is set; the block still raises the loss at its end.
        """
        return Lock(
            self._portal,
            self._portal.call(lambda: self._it.lock(name, ttl=ttl, renew=renew, hold_max=hold_max)),
        )


class Held(Proxy[AsyncHeld]):
    """One acquisition of one lock.  Made by `Lock.acquire()` and by its blocks.

    name: as it was asked for.
    key: the Redis key that stands for it on every server.
    value: what the key contains: random, different for every acquisition.
    lost: an event, set when the lock is no longer held though nobody released it.
    error: the loss, once it is lost.
    """

    name = Attribute[str]()
    key = Attribute[str]()
    value = Attribute[str]()

    @property
    def lost(self) -> Event:
        return Event(self._portal, self._it.lost)

    error = Attribute[LockLost | None]()

    @property
    def token(self) -> Never:
        """There is none: asking raises `Unsupported`, which says why."""
        self._portal.call(lambda: self._it.token)

    @property
    def is_held(self) -> bool:
        """Whether the lock is held now, by this machine's clock."""
        return self._it.is_held

    @property
    def remaining_s(self) -> float:
        """For how long it is held if nothing extends it; 0 if it is not held."""
        return self._it.remaining_s

    def check(self) -> None:
        """Raise `LockLost` unless the lock is held: for just before something that counts on it."""
        self._portal.call(self._it.check)

    def extend(self) -> None:
        """Hold it for a whole time to live from now.

        Raises `LockLost` if it is lost, also if that turns out only now, and `Unavailable` if too few
        servers confirmed: then it is still held for `remaining_s`, and extending may be tried again.
        """
        self._portal.run(self._it.extend)

    def release(self) -> None:
        """Give it up on all servers.  A second time does nothing.

        If the servers turn out to have lost it earlier, `lost` is set and `error` says so.  A caller
        that is cancelled does not stop it, and the end of the Redlock waits for it.
        """
        if self._portal.is_closing:
            return
        self._portal.run(self._it.release)

    def on_loss(self, listener: Callable[[LockLost], object]) -> None:
        """Call `listener` when it is lost; at once if it is.

        In coroutines that is in the same turn of the loop; with `quoracy.redlock.sync`, in a thread for
        listeners.
        """
        self._portal.call(lambda: self._it.on_loss(self._portal.listener(listener)))


class Lock(BlockProxy[AsyncLock]):
    """A name to hold: it is a block itself, or use `hold()`, or `acquire()` and `held.release()`.

    Made by `Redlock.lock`.  It is not reentrant, and it has no queue: waiters try again at random.
    """

    name = Attribute[str]()
    key = Attribute[str]()

    def acquire(self, *, timeout: float | None = None) -> Held:
        """Wait for it, `timeout` seconds at most; None is for ever.  `hold` releases it as well.

        Raises `TimedOut` if it is not held in time, also if that is because servers do not answer, and
        `Unavailable` at once if too many of them answer with an error for waiting to help.  An
        attempt is never cut short: the last may end up to twice the `server_timeout` after `timeout`.
        """
        return Held(self._portal, self._portal.run(lambda: self._it.acquire(timeout=timeout)))

    def try_acquire(self) -> Held | None:
        """Try once.  None: another client has it, or tried at the same moment.

        Raises `Unavailable` if a majority of the servers cannot be reached.
        """
        it = self._portal.run(self._it.try_acquire)
        return None if it is None else Held(self._portal, it)

    def hold(self, *, timeout: float | None = None) -> Block[Held]:
        """A block in which the lock is held, for one use: `lock.hold(timeout=5)`."""
        return Block(
            self._portal,
            self._portal.call(lambda: self._it.hold(timeout=timeout)),
            lambda it: Held(self._portal, it),
        )

    def __enter__(self) -> Held:
        return Held(self._portal, self._enter(self._it))
