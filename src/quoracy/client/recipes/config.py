"""Config: typed settings, each field a key, validated as a whole.

    class Settings(msgspec.Struct, frozen=True):
        workers: int = 4
        greeting: str = "hello"

    async with quoracy.connect("memory:") as q:
        async with q.config("app", Settings) as config:
            await config.set(workers=8, greeting="hi")      # both, or neither
            print(config.value.workers)                     # read locally

The field `workers` of `app` is the key `app/workers`.  A str is stored as its text and bytes as they
are; everything else as JSON.  A field without a key has its default.

What it promises
    * `config.value` is what all keys make together at one revision, `config.revision`; validated.
    * An update that is not valid changes nothing: the last valid value stays, `config.error` is the
      reason, and every listener is notified.
    * `set` and `update` write all their fields or none, and only what makes a valid whole with the
      other fields.
    * A callback that is slow or raises disturbs no other, and may use the connection.

It does not promise every step: a slow listener gets the newest value, not each value in between.
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

from quoracy.client.compare_and_swap import CompareAndSwap, range_at
from quoracy.client.config_section import Section
from quoracy.client.context import Context
from quoracy.client.mirror import STALE_AFTER_S, Bounds, Mirror, MirrorBatch
from quoracy.client.mirror_updater import MirrorBlock
from quoracy.client.session import stop
from quoracy.errors import ValueUnreadable
from quoracy.store.model import Compare, Delete, KeyRange, KeyValue, Op, Put, Range, Txn

__all__ = ["Config", "ConfigChange"]

_log = logging.getLogger(__name__)

S = TypeVar("S")

# Besides the fields there may be keys of other versions of the program.
_KEYS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class ConfigChange(Generic[S]):
    """A change of a config.

    value: the settings in use now.
    previous: the settings that this listener got before.
    changed: the fields in which they differ.
    revision: the revision of the store.
    error: the reason why what is stored at that revision is not valid; then `value` is the last valid
        one.  None: it is valid.
    """

    value: S
    previous: S
    changed: frozenset[str]
    revision: int
    error: ValueUnreadable | None


@dataclass(frozen=True, slots=True)
class _Entry:
    kv: KeyValue


class Config(MirrorBlock[_Entry], Generic[S]):
    """Settings by name, entered once at a time; one object may be shared.

    type: a `msgspec.Struct` or a dataclass.  Make it frozen: all readers get the same object.
    stale_after: after that many seconds without a message from the server `is_stale` is True.

    `set`, `update` and `reset` need no block.
    """

    def __init__(
        self, context: Context, name: str, type: type[S], *, stale_after: float = STALE_AFTER_S
    ) -> None:
        self.name = name
        what = f"the config {name}"
        bounds = Bounds(what, entries_max=_KEYS_MAX)
        root = context.key(name) + b"/"
        super().__init__(context, root, what=what, bounds=bounds, stale_after=stale_after)
        self._section: Section[S] = Section(self._root, type)
        self._value: S | None = None
        self._revision = self._judged = 0  # of `value`; of the newest state, valid or not
        self._error: ValueUnreadable | None = None
        self._versions = 0  # the number of changes to report
        self._callbacks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        """Read the settings.  Raises `ValueUnreadable` if what is stored is not valid."""
        await super().__aenter__()
        error = self._error
        if error is not None:
            await self.__aexit__(None, None, None)
            raise error
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await stop(*self._callbacks)
        finally:
            await super().__aexit__(kind, error, trace)

    # -- reading the local copy --------------------------------------------------------------

    @property
    def value(self) -> S:
        """The settings: the newest that are valid."""
        self._open.check()
        return self._valid

    @property
    def revision(self) -> int:
        """The revision of the store at which `value` was stored."""
        self._open.check()
        return self._revision

    @property
    def error(self) -> ValueUnreadable | None:
        """The reason why the newest settings are not used; None: they are used."""
        self._open.check()
        return self._error

    # -- changes -----------------------------------------------------------------------------

    def changes(self) -> AsyncGenerator[ConfigChange[S], None]:
        """Every change from this call on, valid or not; it ends when the block is left.

        A slow reader gets the newest: `previous` is what this iterator returned last.
        """
        batches = self._open.subscribe()
        return self._changes(batches, self._valid, self._versions)

    def on_change(self, callback: Callable[[ConfigChange[S]], object]) -> Callable[[], None]:
        """Call `callback` with each change from now on.

        It ends with the block, or when the function that is returned is called.  Calls do not overlap;
        in coroutines they are made in a task, and it may be a coroutine function; with `quoracy.sync`,
        in a thread for listeners.  It may use the connection.  What it raises is logged.
        """
        changes = self.changes()

        async def call() -> None:
            async for change in changes:
                try:
                    answer = callback(change)
                    if inspect.isawaitable(answer):
                        await answer
                except Exception:  # noqa: BLE001 (the callback is the program's own)
                    _log.exception("a callback of %s failed", self._what)

        task = self._context.spawn(call(), name="quoracy-config-callback")
        self._callbacks.add(task)
        task.add_done_callback(self._callbacks.discard)

        def remove() -> None:
            task.cancel()

        return remove

    # -- writing -----------------------------------------------------------------------------

    async def set(self, **fields: object) -> int:
        """Set fields, all or none: `config.set(workers=8, greeting="hi")`.

        Returns the revision of the write, for `wait_revision`; if nothing changes, the revision at
        which that was seen.  Raises `InvalidRequest` if the result would not be valid, and then nothing
        is written.  It begins again when another client writes meanwhile; `update` takes a `timeout`.
        """
        puts = self._section.encode(fields)
        return await self._write(lambda _: puts, None)

    async def update(self, change: Callable[[S], S], *, timeout: float | None = None) -> int:
        """Set what `change` makes of the settings as they are; it is called again after a conflict.

        Raises `ValueUnreadable` if what is stored is not valid; otherwise as `set`.
        """

        def writes(stored: Mapping[bytes, bytes]) -> Mapping[bytes, bytes]:
            before = self._section.decode(stored)
            after = change(before)
            return self._section.difference(before, after)

        return await self._write(writes, timeout)

    async def reset(self, field: str, *, timeout: float | None = None) -> int:
        """Delete what is stored for a field, which then has its default."""
        key = self._section.key(field)
        return await self._write(lambda _: {key: None}, timeout)

    async def _write(
        self,
        wanted: Callable[[Mapping[bytes, bytes]], Mapping[bytes, bytes | None]],
        timeout: float | None,
    ) -> int:
        """Compare and swap the whole section until there is no conflict."""
        context = self._context
        swap = CompareAndSwap(context, f"writing {self._what}", timeout)
        with context.wait_scope(f"reading {self._what}", timeout):
            found = await context.store.range(KeyRange.prefix(self._root), limit=_KEYS_MAX)
        while True:
            stored = {kv.key: kv.value for kv in found.kvs}
            writes = {key: new for key, new in wanted(stored).items() if new != stored.get(key)}
            if not writes:
                return found.revision
            self._section.check(stored, writes)
            result = await context.write(self._swap(found.kvs, writes))
            if result.succeeded:
                return result.revision
            found = range_at(result, 0)
            await swap.backoff()

    def _swap(self, stored: Sequence[KeyValue], writes: Mapping[bytes, bytes | None]) -> Txn:
        # Every field is compared: whether the whole is valid depends on the others too.
        revisions = {kv.key: kv.mod_revision for kv in stored}
        then: list[Op] = [
            Delete(key) if value is None else Put(key, value) for key, value in writes.items()
        ]
        compares = (Compare.mod_revision(key, "=", revisions.get(key, 0)) for key in self._section.keys)
        otherwise = Range(KeyRange.prefix(self._root), limit=_KEYS_MAX)
        return Txn(tuple(compares), tuple(then), (otherwise,))

    # -- inside ------------------------------------------------------------------------------

    @property
    def _valid(self) -> S:
        # It is set as soon as the block is entered, and None is no type of settings.
        return self._value  # type: ignore[return-value]

    def _entry(self, kv: KeyValue) -> _Entry:
        return _Entry(kv)

    def _reset(self) -> None:
        self._value = self._error = None

    def _on_batch(self, mirror: Mirror[_Entry], batch: MirrorBatch[_Entry]) -> None:
        """Decode what the mirror holds now."""
        if not batch.changes and self._value is not None:
            if self._error is None:
                self._revision = batch.revision
            return
        self._judged = batch.revision
        stored = {key: entry.kv.value for key, entry in mirror.entries.items()}
        try:
            value = self._section.decode(stored)
        except ValueUnreadable as error:
            _log.warning("%s keeps its last good value: %s", self._what, error)
            self._error = error
            self._versions += 1
            return
        if value != self._value or self._error is not None:
            self._versions += 1
        self._value, self._error, self._revision = value, None, batch.revision

    async def _changes(
        self, batches: AsyncGenerator[MirrorBatch[_Entry], None], previous: S, seen: int
    ) -> AsyncGenerator[ConfigChange[S], None]:
        async with aclosing(batches):
            async for _ in batches:
                if self._versions == seen:
                    continue  # a key that is no field, or reported together with an earlier batch
                seen, value = self._versions, self._valid
                changed = self._section.changed(previous, value)
                yield ConfigChange(value, previous, changed, self._judged, self._error)
                previous = value

    def __repr__(self) -> str:
        return f"<Config {self.name}>"
