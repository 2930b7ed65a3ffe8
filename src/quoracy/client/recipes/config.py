"""Config: settings of a type, each field a key, always a whole that is valid.

    class Settings(msgspec.Struct, frozen=True):
        workers: int = 4
        greeting: str = "hello"

    async with quoracy.connect("memory:") as q:
        async with q.config("app", Settings) as config:
            await config.set(workers=8, greeting="hi")      # both, or neither
            print(config.value.workers)                     # nobody is asked

The field `workers` of `app` is the key `app/workers`.  A str is stored as its text and bytes as they
are; everything else as JSON.  A key that is not there means the default of the field.

What it promises
    * `config.value` is what all keys made together at one revision, `config.revision`; validated.
    * An update that is not valid changes nothing: the last good value stays, `config.error` says why
      the newest is not used, and everyone who listens is told.
    * `set` and `update` write all their fields or none, and only what makes a valid whole with the
      rest.
    * A callback that is slow or raises harms nobody, and may use the connection.

It does not promise every step: whoever is slow is told the newest, not each value on the way.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from types import TracebackType
from typing import Generic, Self, TypeVar

from quoracy.client.compare_and_swap import Race
from quoracy.client.config_section import Section
from quoracy.client.context import Ground
from quoracy.client.mirror import STALE_AFTER_S, Bounds, Mirror, MirrorBatch, MirrorKeeper
from quoracy.client.session import stop
from quoracy.errors import InvalidRequest, ValueUnreadable
from quoracy.store.model import Compare, Delete, KeyRange, KeyValue, Op, Put, Range, RangeResult, Txn

__all__ = ["Config", "ConfigChange"]

_log = logging.getLogger(__name__)

S = TypeVar("S")

# Besides the fields there may be keys of other versions of the program.
_KEYS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class ConfigChange(Generic[S]):
    """What there is to know about a config that changed.

    value: the settings that count now.
    previous: those that whoever is told this was told before.
    changed: the fields in which they differ.
    revision: the revision of the store that this speaks of.
    error: why what is stored at that revision is not valid; None: it is.  `value` is the last good one.
    """

    value: S
    previous: S
    changed: frozenset[str]
    revision: int
    error: ValueUnreadable | None


@dataclass(frozen=True, slots=True)
class _Kept:
    kv: KeyValue


class Config(Generic[S]):
    """Settings by name; entered once at a time, shared by whoever likes.

    type: a `msgspec.Struct` or a dataclass.  Make it frozen: all who read it get the same object.
    stale_after: after how many seconds without a word from the server `is_stale` is True.

    `set`, `update` and `reset` need no block.
    """

    def __init__(
        self, ground: Ground, name: str, type: type[S], *, stale_after: float = STALE_AFTER_S
    ) -> None:
        self.name = name
        self._root = ground.key(name) + b"/"
        self._ground = ground
        self._section: Section[S] = Section(self._root, type)
        self._what = f"the config {name}"
        if not stale_after > 0:
            raise InvalidRequest(f"stale_after is {stale_after}. Give a positive number of seconds.")
        self._stale_after = stale_after
        self._entering = False
        self._mirror = self._new_mirror()
        self._keeper: MirrorKeeper[_Kept] | None = None
        self._value: S | None = None
        self._revision = self._judged = 0  # at which `value` was stored; at which `error` was seen
        self._error: ValueUnreadable | None = None
        self._news = 0  # how often there was something to tell
        self._callbacks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        """Read the settings.  Raises `ValueUnreadable` if what is stored is not valid."""
        self._ground.check()
        if self._entering:
            raise InvalidRequest(f"{self._what} is entered already. Share it, or make another.")
        self._entering = True
        self._begin_anew()
        keeper = MirrorKeeper(self._ground, self._mirror, what=self._what, on_batch=self._on_batch)
        try:
            await keeper.start()
            if self._error is not None:
                await keeper.stop()
                raise self._error
        except BaseException:
            self._entering = False
            raise
        self._keeper = keeper
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._entering = False
        try:
            await stop(*self._callbacks)
        finally:
            if self._keeper is not None:
                await self._keeper.stop()

    # -- reading: nobody is asked ------------------------------------------------------------

    @property
    def value(self) -> S:
        """The settings: the newest that are valid."""
        self._open.check()
        return self._good

    @property
    def revision(self) -> int:
        """The revision of the store at which `value` was what is stored."""
        self._open.check()
        return self._revision

    @property
    def error(self) -> ValueUnreadable | None:
        """Why the newest settings are not used; None: they are."""
        self._open.check()
        return self._error

    @property
    def silence_s(self) -> float:
        """How long ago the server last told how things stand, in seconds."""
        return self._open.mirror.silence_s

    @property
    def is_stale(self) -> bool:
        """Whether the server was silent for so long that the settings may be out of date."""
        return self._open.error is not None or self.silence_s > self._stale_after

    # -- being told --------------------------------------------------------------------------

    async def wait_revision(self, revision: int, *, timeout: float | None = None) -> None:
        """Wait until what `set` wrote, for instance, has been taken in.  Raises `TimedOut`."""
        await self._open.wait_revision(revision, timeout)

    def changes(self) -> AsyncGenerator[ConfigChange[S], None]:
        """Every change from this call on, also for the worse; it ends when the block is left.

        Whoever is slow gets the newest: `previous` is what this iterator told last.
        """
        batches = self._open.feed()
        return self._changes(batches, self._good, self._news)

    def on_change(self, callback: Callable[[ConfigChange[S]], object]) -> Callable[[], None]:
        """Call `callback` with each change from now on; what is returned ends that, as does the block.

        One call comes after the other: in a task of its own, where it may be a coroutine function as
        well; with `quoracy.sync`, in a thread for listeners.  It may use the connection.
        What it raises is logged.
        """
        changes = self.changes()

        async def call() -> None:
            async for change in changes:
                try:
                    answer = callback(change)
                    if inspect.isawaitable(answer):
                        await answer
                except Exception:  # noqa: BLE001 (whatever the program's own callback may raise)
                    _log.exception("a callback of %s failed", self._what)

        task = self._ground.spawn(call(), name="quoracy-config-callback")
        self._callbacks.add(task)
        task.add_done_callback(self._callbacks.discard)

        def remove() -> None:
            task.cancel()

        return remove

    # -- writing -----------------------------------------------------------------------------

    async def set(self, **fields: object) -> int:
        """Set fields, all or none: `config.set(workers=8, greeting="hi")`.

        Returns the revision of the write, for `wait_revision`; or, if everything was so already, the
        one at which that was seen.  Raises `InvalidRequest` if what would result is not valid, and then
        nothing is written.  Others who write meanwhile make it begin again; `update` takes a `timeout`.
        """
        puts = self._section.encode(fields)
        return await self._write(lambda _: puts, None)

    async def update(self, change: Callable[[S], S], *, timeout: float | None = None) -> int:
        """Set what `change` makes of the settings as they are; called again if others were faster.

        What is stored must be valid to begin with (`ValueUnreadable`); otherwise as `set`.
        """

        def writes(stored: Mapping[bytes, bytes]) -> Mapping[bytes, bytes]:
            before = self._section.decode(stored)
            after = change(before)
            return self._section.difference(before, after)

        return await self._write(writes, timeout)

    async def reset(self, field: str, *, timeout: float | None = None) -> int:
        """Remove what is stored for a field: its default counts again."""
        key = self._section.key(field)
        return await self._write(lambda _: {key: None}, timeout)

    async def _write(
        self,
        wanted: Callable[[Mapping[bytes, bytes]], Mapping[bytes, bytes | None]],
        timeout: float | None,
    ) -> int:
        """Compare and swap the whole section until nobody comes in between."""
        ground = self._ground
        race = Race(ground, f"writing {self._what}", timeout)
        with ground.waiting(f"reading {self._what}", timeout):
            found = await ground.store.range(KeyRange.prefix(self._root), limit=_KEYS_MAX)
        while True:
            stored = {kv.key: kv.value for kv in found.kvs}
            writes = {key: new for key, new in wanted(stored).items() if new != stored.get(key)}
            if not writes:
                return found.revision
            self._section.check(stored, writes)
            result = await ground.write(self._swap(found.kvs, writes))
            if result.succeeded:
                return result.revision
            (newer,) = result.results
            assert isinstance(newer, RangeResult)
            found = newer
            await race.lost()

    def _swap(self, stored: Sequence[KeyValue], writes: Mapping[bytes, bytes | None]) -> Txn:
        # Every field is compared: what is valid depends on those that are not written as well.
        revisions = {kv.key: kv.mod_revision for kv in stored}
        then: list[Op] = [
            Delete(key) if value is None else Put(key, value) for key, value in writes.items()
        ]
        compares = (Compare.mod_revision(key, "=", revisions.get(key, 0)) for key in self._section.keys)
        otherwise = Range(KeyRange.prefix(self._root), limit=_KEYS_MAX)
        return Txn(tuple(compares), tuple(then), (otherwise,))

    # -- inside ------------------------------------------------------------------------------

    @property
    def _open(self) -> MirrorKeeper[_Kept]:
        self._ground.check()
        if self._keeper is None:
            raise InvalidRequest(f"{self._what} is not open. Use it inside `async with`.")
        return self._keeper

    @property
    def _good(self) -> S:
        # There is one as soon as the block is entered, and None is no type for settings.
        return self._value  # type: ignore[return-value]

    def _begin_anew(self) -> None:
        self._value, self._error, self._mirror = None, None, self._new_mirror()

    def _new_mirror(self) -> Mirror[_Kept]:
        return Mirror(
            self._ground,
            KeyRange.prefix(self._root),
            _Kept,
            bounds=Bounds(self._what, entries_max=_KEYS_MAX),
            quiet_s=self._stale_after,
        )

    def _on_batch(self, batch: MirrorBatch[_Kept]) -> None:
        """Take in what the mirror holds now."""
        if not batch.changes and self._value is not None:
            if self._error is None:
                self._revision = batch.revision
            return
        self._judged = batch.revision
        stored = {key: kept.kv.value for key, kept in self._mirror.entries.items()}
        try:
            value = self._section.decode(stored)
        except ValueUnreadable as error:
            _log.warning("%s keeps its last good value: %s", self._what, error)
            self._error = error
            self._news += 1
            return
        if value != self._value or self._error is not None:
            self._news += 1
        self._value, self._error, self._revision = value, None, batch.revision

    async def _changes(
        self, batches: AsyncGenerator[MirrorBatch[_Kept], None], previous: S, seen: int
    ) -> AsyncGenerator[ConfigChange[S], None]:
        async with aclosing(batches):
            async for _ in batches:
                if self._news == seen:
                    continue  # a key that is no field, or what was told together with a batch before
                seen, value = self._news, self._good
                changed = self._section.changed(previous, value)
                yield ConfigChange(value, previous, changed, self._judged, self._error)
                previous = value

    def __repr__(self) -> str:
        return f"<Config {self.name}>"
