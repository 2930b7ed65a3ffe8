"""Counter: one shared integer of any size; every addition counts, and none counts twice.

    async with quoracy.connect("memory:") as q:
        counter = q.counter("orders")
        number = await counter.add(1)                               # the new value
        number = await counter.add(1, request_id="order-4711")      # may be repeated with the same id

What it promises
    * `add` returns the value that its own addition made: a caller that adds 1 gets a number that no
      other gets.
    * An addition whose answer was lost raises `Indeterminate`; it is never sent again by itself.
    * With `request_id=` the store remembers, in the same transaction, that this request was carried out
      and its result.  Repeated, from any process, it returns that result and adds nothing.  It is
      remembered for `remember` seconds at least, and forgotten after three times that; a repetition
      that comes later adds again.
    * The value is kept as decimal text, which other clients can read; beyond 2,048 bits, hexadecimal.
"""

from __future__ import annotations

import asyncio
import re

import msgspec

from quoracy.client.codec import codec_of
from quoracy.client.compare_and_swap import CompareAndSwap, key_at, key_now, swap_txn
from quoracy.client.context import Context
from quoracy.errors import InvalidRequest, LeaseNotFound, ValueUnreadable
from quoracy.store.model import Compare, KeyValue, Put, TxnResult

__all__ = ["Counter"]

# Python converts decimal text only up to a number of digits that a user may set as low as 640.
_DECIMAL_BITS_MAX = 2048
_DECIMAL = re.compile(rb"-?[0-9]{1,640}")
_HEXADECIMAL = re.compile(rb"-?0x[0-9a-f]+")


class _Added(msgspec.Struct, frozen=True):
    """A request that was carried out: what it added, and its result, as text."""

    added: str
    value: str


_added = codec_of(_Added)


class Counter:
    """A counter by name; one object may be shared.  A counter that was never changed is 0.

    remember: the seconds for which a request id is remembered, at least.
    """

    def __init__(self, context: Context, name: str, *, remember: float = 600.0) -> None:
        if not 1 <= remember <= 1e9:
            raise InvalidRequest(f"remember is {remember}. Give seconds, from 1 to a billion.")
        self.name = name
        self._context, self._key = context, context.key(name)
        self._requests = self._key + b"/requests/"
        self._what = f"the counter {name}"
        self._request_lease = _RequestLease(context, remember)
        self._mutex = asyncio.Lock()
        self._seen: KeyValue | None = None  # what this object wrote last: a guess that saves a read

    async def get(self) -> int:
        """The value."""
        return self._value(await self._context.read_key(self._key))

    async def add(
        self, n: int = 1, *, request_id: str | None = None, timeout: float | None = None
    ) -> int:
        """Add a number, which may be negative; returns the new value.

        request_id: any text that is this addition's own.  Repeating it with another `n` is refused.
        timeout: how long to try against others that add at the same moment; `TimedOut` means that
            nothing was added.

        Raises `Indeterminate` if the answer was lost: it may have been added.
        """
        swap = CompareAndSwap(self._context, f"adding to {self._what}", timeout)
        if request_id == "":
            raise InvalidRequest("request_id is empty. Give text that is this request's own, or None.")
        async with swap.exclusive(self._mutex):
            return await self._add(n, request_id, swap)

    async def compare_and_set(self, expected: int, value: int) -> bool:
        """Set it if it is what you expect; False: it is not, and nothing was changed."""
        swap = CompareAndSwap(self._context, f"setting {self._what}", None)
        seen = await self._context.read_key(self._key)
        while self._value(seen) == expected:
            result = await self._write(seen, value)
            if result.succeeded:
                return True
            seen = key_now(result)
            await swap.backoff()
        return False

    async def _add(self, n: int, request_id: str | None, swap: CompareAndSwap) -> int:
        seen = self._seen
        is_guess = seen is not None
        if seen is None:
            seen = await self._context.read_key(self._key)
        request = None if request_id is None else self._requests + request_id.encode()
        while True:
            value = self._value(seen) + n
            puts: tuple[Put, ...] = ()
            if request is not None:
                added = _added.encode(_Added(_text(n), _text(value)))
                puts = (Put(request, added, await self._request_lease.get()),)
            try:
                result = await self._write(seen, value, *puts)
            except LeaseNotFound:
                self._request_lease.forget()  # refused as a whole, so nothing was added
                await swap.backoff()
                continue
            if result.succeeded:
                return value
            seen = key_now(result)
            before = key_at(result, 1) if request is not None else None
            if before is not None:
                return self._repeated(before, n, request_id)
            if not is_guess:
                await swap.backoff()
            is_guess = False

    def _repeated(self, before: KeyValue, n: int, request_id: str | None) -> int:
        done = _added.decode(before.key, before.value)
        if done.added != _text(n):
            raise InvalidRequest(
                f"the request {request_id!r} on {self._what} added {done.added}, not {_text(n)}. "
                "Give each addition an id of its own."
            )
        return _integer(before.key, done.value.encode())

    async def _write(self, seen: KeyValue | None, value: int, *requests: Put) -> TxnResult:
        """Set it if it is as it was seen and if none of the requests was carried out before."""
        key, data = self._key, _text(value).encode()
        also = tuple(Compare.missing(put.key) for put in requests)
        read = tuple(put.key for put in requests)
        self._seen = None  # unknown until the answer
        result = await self._context.write(
            swap_txn(key, seen, Put(key, data), *requests, also=also, read=read)
        )
        if result.succeeded:
            # Only its value and its mod_revision are used.
            self._seen = KeyValue(key, data, 0, result.revision, 0)
        return result

    def _value(self, seen: KeyValue | None) -> int:
        return 0 if seen is None else _integer(self._key, seen.value)

    def __repr__(self) -> str:
        return f"<Counter {self.name}>"


class _RequestLease:
    """The lease to which requests are attached: a new one every `least_s` seconds.

    A lease lives three times as long as requests are attached to it, and is not renewed: a request that
    is attached at the last moment is kept for another `2 * least_s`, so clocks may differ a lot.
    """

    def __init__(self, context: Context, least_s: float) -> None:
        self._context, self._least_s = context, least_s
        self._lease = 0
        self._until = 0.0

    async def get(self) -> int:
        """For one task at a time."""
        if not self._lease or self._context.clock.now() >= self._until:
            asked = self._context.clock.now()
            self._lease = (await self._context.store.grant(3 * self._least_s)).id
            self._until = asked + self._least_s
        return self._lease

    def forget(self) -> None:
        """The lease does not exist any more."""
        self._lease = 0


def _text(value: int) -> str:
    return str(value) if value.bit_length() <= _DECIMAL_BITS_MAX else hex(value)


def _integer(key: bytes, data: bytes) -> int:
    if _DECIMAL.fullmatch(data):
        return int(data)
    if _HEXADECIMAL.fullmatch(data):
        return int(data, 16)
    raise ValueUnreadable(key, wanted="integer", why=f"it is {data[:40]!r}")
