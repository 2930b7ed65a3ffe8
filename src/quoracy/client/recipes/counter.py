"""Counter: one integer of any size, shared; every addition counts, and none counts twice.

    async with quoracy.connect("memory:") as q:
        counter = q.counter("orders")
        number = await counter.add(1)                               # the new value
        number = await counter.add(1, request_id="order-4711")      # may be repeated with the same id

What it promises
    * `add` returns the value that its own addition made: who adds 1 gets a number that is theirs alone.
    * An addition whose answer was lost raises `Indeterminate`; it is never sent again behind your back.
    * With `request_id=` the store remembers, in the same transaction, that this request was carried out
      and what came out.  Repeated, from any process, it returns that again and adds nothing.  It is
      remembered for `remember` seconds at least, and given up after three times that; a repetition that
      comes later adds again.
    * The value is kept as decimal text, which other clients can read; beyond 2,048 bits, hexadecimal.
"""

from __future__ import annotations

import asyncio
import re

import msgspec

from quoracy.client.codec import codec_of
from quoracy.client.compare_and_swap import Race, found, found_first, swapping
from quoracy.client.context import Ground
from quoracy.errors import InvalidRequest, LeaseNotFound, ValueUnreadable
from quoracy.store.model import Compare, KeyValue, Put, TxnResult

__all__ = ["Counter"]

# Python converts decimal text only up to a number of digits that a user may set as low as 640.
_DECIMAL_BITS_MAX = 2048
_DECIMAL = re.compile(rb"-?[0-9]{1,640}")
_HEXADECIMAL = re.compile(rb"-?0x[0-9a-f]+")


class _Added(msgspec.Struct, frozen=True):
    """A request that was carried out: how much it added, and what came out, as text."""

    added: str
    value: str


_added = codec_of(_Added)


class Counter:
    """A counter by name; one object may be shared.  One that nobody changed yet is 0.

    remember: how many seconds a request id is remembered, at least.
    """

    def __init__(self, ground: Ground, name: str, *, remember: float = 600.0) -> None:
        if not 1 <= remember <= 1e9:
            raise InvalidRequest(f"remember is {remember}. Give seconds, from 1 to a billion.")
        self.name = name
        self._ground, self._key = ground, ground.key(name)
        self._requests = self._key + b"/requests/"
        self._what = f"the counter {name}"
        self._memory = _Memory(ground, remember)
        self._turn = asyncio.Lock()
        self._seen: KeyValue | None = None  # what we wrote last: a guess that saves a read

    async def get(self) -> int:
        """The value."""
        return self._value(await self._look())

    async def add(
        self, n: int = 1, *, request_id: str | None = None, timeout: float | None = None
    ) -> int:
        """Add to it, or take away; the new value is returned.

        request_id: any text that is this addition's own.  Repeating it with another `n` is refused.
        timeout: how long to try against others who add at the same moment; `TimedOut` means that
            nothing was added.

        Raises `Indeterminate` if the answer was lost: it may have been added.
        """
        race = Race(self._ground, f"adding to {self._what}", timeout)
        async with race.turn(self._turn):
            if request_id is not None:
                return await self._add_once(n, request_id, race)
            return await self._add(n, race)

    async def compare_and_set(self, expected: int, value: int) -> bool:
        """Set it if it is what you expect; False: it is not, and nothing was changed."""
        race = Race(self._ground, f"setting {self._what}", None)
        seen = await self._look()
        while self._value(seen) == expected:
            result = await self._write(seen, value)
            if result.succeeded:
                return True
            seen = found_first(result)
            await race.lost()
        return False

    async def _add(self, n: int, race: Race) -> int:
        seen, is_guess = await self._begin()
        while True:
            value = self._value(seen) + n
            result = await self._write(seen, value)
            if result.succeeded:
                return value
            seen = found_first(result)
            if not is_guess:
                await race.lost()
            is_guess = False

    async def _add_once(self, n: int, request_id: str, race: Race) -> int:
        if not request_id:
            raise InvalidRequest("request_id is empty. Give text that is this request's own, or None.")
        request = self._requests + request_id.encode()
        seen, is_guess = await self._begin()
        while True:
            value = self._value(seen) + n
            memory = _added.encode(_Added(_text(n), _text(value)))
            lease = await self._memory.lease()
            try:
                result = await self._write(seen, value, Put(request, memory, lease), request=request)
            except LeaseNotFound:
                self._memory.forget(lease)  # refused as a whole, so nothing was added
                await race.lost()
                continue
            if result.succeeded:
                return value
            seen = found_first(result)
            before = found(result, 1)
            if before is not None:
                return self._repeated(before, n, request_id)
            if not is_guess:
                await race.lost()
            is_guess = False

    def _repeated(self, before: KeyValue, n: int, request_id: str) -> int:
        done = _added.decode(before.key, before.value)
        if done.added != _text(n):
            raise InvalidRequest(
                f"the request {request_id!r} on {self._what} added {done.added}, not {_text(n)}. "
                "Give each addition an id of its own."
            )
        return _integer(before.key, done.value.encode())

    async def _write(
        self, seen: KeyValue | None, value: int, *puts: Put, request: bytes | None = None
    ) -> TxnResult:
        """Set it if it is as it was seen and, with a request, if that was not carried out yet."""
        key, data = self._key, _text(value).encode()
        also = () if request is None else (Compare.missing(request),)
        read = () if request is None else (request,)
        self._seen = None  # whatever happens, until the answer is here
        result = await self._ground.write(
            swapping(key, seen, Put(key, data), *puts, also=also, read=read)
        )
        if result.succeeded:
            # Only its value and its mod_revision are looked at.
            self._seen = KeyValue(key, data, 0, result.revision, 0)
        return result

    async def _begin(self) -> tuple[KeyValue | None, bool]:
        """The counter as it was when we last wrote it, which is a guess; otherwise as it is."""
        self._ground.check()
        return (await self._look(), False) if self._seen is None else (self._seen, True)

    async def _look(self) -> KeyValue | None:
        self._ground.check()
        kvs = (await self._ground.store.range(self._key)).kvs
        return kvs[0] if kvs else None

    def _value(self, seen: KeyValue | None) -> int:
        return 0 if seen is None else _integer(self._key, seen.value)

    def __repr__(self) -> str:
        return f"<Counter {self.name}>"


class _Memory:
    """The lease that requests are remembered with: a new one every `least_s` seconds.

    A lease lives three times as long as requests are attached to it, and nobody renews it: whatever is
    attached to it at the last moment is kept for another `2 * least_s`, so clocks may differ a lot.
    """

    def __init__(self, ground: Ground, least_s: float) -> None:
        self._ground, self._least_s = ground, least_s
        self._lease = 0
        self._until = 0.0

    async def lease(self) -> int:
        """For one task at a time."""
        if not self._lease or self._ground.clock.now() >= self._until:
            asked = self._ground.clock.now()
            self._lease = (await self._ground.store.grant(3 * self._least_s)).id
            self._until = asked + self._least_s
        return self._lease

    def forget(self, lease: int) -> None:
        """There is no such lease any more."""
        if self._lease == lease:
            self._lease = 0


def _text(value: int) -> str:
    return str(value) if value.bit_length() <= _DECIMAL_BITS_MAX else hex(value)


def _integer(key: bytes, data: bytes) -> int:
    if _DECIMAL.fullmatch(data):
        return int(data)
    if _HEXADECIMAL.fullmatch(data):
        return int(data, 16)
    raise ValueUnreadable(key, wanted="integer", why=f"it is {data[:40]!r}")
