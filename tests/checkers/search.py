"""Is there one order of these operations that explains every answer?  The search of Wing and Gong.

The register holds one value (or None).  Each operation takes effect at one instant between its call
and its answer; the search looks for such instants.  It walks the calls that may come next (those before
the first answer that is still to be explained), takes one, and goes back when it is stuck.  Lowe's
memory of configurations already seen ("Testing for linearizability", 2017) keeps it from trying the
same twice.

What makes it quick on registers, without changing the verdict
    * A read that fits (or a compare that rightly failed) is taken at once: it changes nothing, so no
      order is lost.
    * A value that somebody still has to see, and that nobody can write again, is never overwritten.
    * A write that nobody needs to see any more is taken where it does no harm: over a value that nobody
      needs to see either, or right before another write.
    * Operations without known outcome (they may come at any time after their call, or never) are not
      walked.  Such a one is taken only right before an operation that does not fit without it; anywhere
      else it could as well be left out, or come later.  Those that do the same are counted, not told
      apart: the one called first is taken first.
    * Values that no operation asks for are one value.

Invariants
    * True and False are exact: a branch that is cut holds no order that no other branch holds.
    * `OutOfReach` when the time is up or the memory is full, never a guess.
    * Times that are equal overlap: who was called when another was answered may come first.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tests.checkers.history import Op

__all__ = ["CONFIGURATIONS_MAX", "OutOfReach", "is_explained"]

CONFIGURATIONS_MAX = 3_000_000
_LOOK_AT_CLOCK_EVERY = 1_024  # configurations

_READ, _WRITE, _SWAP, _MISS = range(4)  # a miss is a compare that failed
_NOBODY_ASKS = 0  # stands for every value that no operation asks for


class OutOfReach(Exception):
    """The search gave up; the message says at which bound."""


def is_explained(
    ops: Sequence[Op],
    *,
    initial: bytes | None,
    give_up_at: float,
    configurations_max: int = CONFIGURATIONS_MAX,
) -> bool:
    """Whether operations on one register, which held `initial`, are linearizable.

    `give_up_at` is a reading of time.thread_time(): OutOfReach past it.
    """
    search = _Search(ops, initial)
    return search.run(give_up_at, configurations_max)


class _Choice(NamedTuple):
    """One way on: operations without known outcome (by class), then one with a known outcome."""

    op: int
    optional: tuple[int, ...]


class _Frame(NamedTuple):
    """A configuration with ways on that were not tried yet."""

    taken: int  # how many operations
    first: int
    ahead: int
    state: int
    used: int
    choices: Iterator[_Choice]


class _Optional:
    """The operations without known outcome, in classes: of the same effect, by the time of the call."""

    def __init__(self, ops: Sequence[Op], numbers: dict[bytes | None, int]) -> None:
        classes: dict[tuple[int | None, int], list[float]] = {}
        for op in sorted(ops, key=lambda op: op.call):
            asks = numbers[op.expected] if op.kind == "cas" else None
            puts = numbers.get(op.value, _NOBODY_ASKS)
            if asks != puts:  # else it changes nothing, ever
                classes.setdefault((asks, puts), []).append(op.call)
        self.asks = [asks for asks, _ in classes]  # None: it is a plain write
        self.puts = [puts for _, puts in classes]
        self.calls = list(classes.values())
        self.making: dict[int, list[int]] = {}
        self.units: list[int] = []  # what one operation of the class adds to the number of used ones
        shift = 0
        for number, puts in enumerate(self.puts):
            self.making.setdefault(puts, []).append(number)
            self.units.append(1 << shift)
            shift += len(self.calls[number]).bit_length()

    def is_free(self, number: int, used: int, by: float) -> bool:
        """Whether one more of the class was called by that time."""
        calls = self.calls[number]
        count = used // self.units[number] & ((1 << len(calls).bit_length()) - 1)
        return count < len(calls) and calls[count] <= by

    def chains(
        self, state: int, goal: int, used: int, by: float, avoid: tuple[int, ...] = ()
    ) -> Iterator[tuple[int, ...]]:
        """Every shortest way from one value to another: a write or a compare, then only compares."""
        for number in self.making.get(goal, ()):
            if not self.is_free(number, used, by):
                continue
            asks = self.asks[number]
            if asks is None or asks == state:
                yield (number,)
            elif asks not in avoid:
                for before in self.chains(state, asks, used, by, (*avoid, goal)):
                    yield (*before, number)

    def away(self, state: int, used: int, by: float) -> Iterator[tuple[int, ...]]:
        """Every single step to another value."""
        for number, (asks, puts) in enumerate(zip(self.asks, self.puts, strict=True)):
            if puts != state and (asks is None or asks == state) and self.is_free(number, used, by):
                yield (number,)


class _Search:
    """One register's history, and how far it is explained.

    Entry i is the call of operation i, entry count + i its answer, entry 2 * count the end of the ring.
    """

    def __init__(self, ops: Sequence[Op], initial: bytes | None) -> None:
        timed = [(op.call, op.done, op) for op in ops if op.done is not None]
        timed.sort(key=lambda each: each[0])
        known = [op for _, _, op in timed]
        unknown = [op for op in ops if op.done is None and op.kind != "read"]
        numbers = _numbers(known, unknown)
        self._count = len(known)
        self._dones = [done for _, done, _ in timed]
        self._next, self._prev = _ring([call for call, _, _ in timed], self._dones)
        self._optional = _Optional(unknown, numbers)
        self._kinds: list[int] = []
        self._asks: list[int] = []  # the value that must be there; for a miss, must not
        self._puts: list[int] = []
        # By value, of the operations not taken: how many ask for it, how many write it.
        self._askers = [0] * (len(numbers) + 1)
        self._makers = [0] * (len(numbers) + 1)
        self._misses = 0
        for op in known:
            self._prepare(op, numbers)
        for puts, calls in zip(self._optional.puts, self._optional.calls, strict=True):
            self._makers[puts] += len(calls)
        self._optional_asks = {asks for asks in self._optional.asks if asks is not None}
        self._state = numbers.get(initial, _NOBODY_ASKS)
        self._first = 0  # every operation before this one is taken
        self._ahead = 0  # bit i: operation first + i is taken as well
        self._used = 0  # of each class of optional operations, a field of bits: how many are taken
        self._taken: list[int] = []

    def _prepare(self, op: Op, numbers: dict[bytes | None, int]) -> None:
        asks = puts = _NOBODY_ASKS
        if op.kind == "read":
            kind, asks = _READ, numbers[op.value]
        elif op.kind == "write":
            kind, puts = _WRITE, numbers.get(op.value, _NOBODY_ASKS)
        elif op.ok:
            kind, asks, puts = _SWAP, numbers[op.expected], numbers.get(op.value, _NOBODY_ASKS)
        else:
            kind, asks = _MISS, numbers[op.expected]
        self._kinds.append(kind)
        self._asks.append(asks)
        self._puts.append(puts)
        self._count_op(kind, asks, puts, 1)

    def _count_op(self, kind: int, asks: int, puts: int, by: int) -> None:
        if kind == _MISS:
            self._misses += by
            return
        if kind != _WRITE:
            self._askers[asks] += by
        if kind != _READ:
            self._makers[puts] += by

    # -- the walk

    def run(self, give_up_at: float, configurations_max: int) -> bool:
        seen: set[tuple[int, int, int, int]] = set()
        stack: list[_Frame] = []
        if any(
            askers and not makers and value != self._state
            for value, (askers, makers) in enumerate(zip(self._askers, self._makers, strict=True))
        ):
            return False  # somebody saw what nobody wrote
        while True:
            open_ops, first_answer = self._take_what_fits()
            if first_answer is None:
                return True
            configuration = (self._first, self._ahead, self._state, self._used)
            choices: list[_Choice] = []
            if configuration not in seen:
                seen.add(configuration)
                choices = self._choices(open_ops, first_answer)
                if len(seen) > configurations_max:
                    raise OutOfReach(f"more than {configurations_max} configurations")
                if len(seen) % _LOOK_AT_CLOCK_EVERY == 0 and time.thread_time() > give_up_at:
                    raise OutOfReach(f"out of time, with {len(seen)} configurations seen")
            stack.append(_Frame(len(self._taken), *configuration, iter(choices)))
            while (choice := next(stack[-1].choices, None)) is None:
                stack.pop()
                if not stack:
                    return False
                self._back_to(stack[-1])
            self._go(choice)

    def _take_what_fits(self) -> tuple[list[int], int | None]:
        """Take every operation that may come next and does no harm.

        What is left of those that may come next, and whose answer comes first; None if nothing is left.
        """
        count, following = self._count, self._next
        kinds, asks, state = self._kinds, self._asks, self._state
        open_ops: list[int] = []
        entry = following[2 * count]
        while entry < count:
            kind = kinds[entry]
            if kind == _WRITE:
                fits = not self._misses and self._is_idle(state) and self._is_idle(self._puts[entry])
                if fits:
                    state = self._state = self._puts[entry]
            elif kind == _SWAP:
                fits = False
            else:
                fits = (asks[entry] == state) == (kind == _READ)
            if fits:
                entry = self._take(entry)
            else:
                open_ops.append(entry)
                entry = following[entry]
        return open_ops, None if entry == 2 * count else entry - count

    def _is_idle(self, value: int) -> bool:
        """Whether nobody can ask for the value any more (but for misses, which it might help)."""
        return not self._askers[value] and value not in self._optional_asks

    def _choices(self, open_ops: Sequence[int], first_answer: int) -> list[_Choice]:
        """Every way on that does not lose a value somebody has to see; the most likely ones first."""
        state, optional = self._state, self._optional
        by = self._dones[first_answer]
        found: list[_Choice] = []
        for op in open_ops:
            kind, asks = self._kinds[op], self._asks[op]
            if kind == _WRITE or (kind == _SWAP and asks == state):
                found.append(_Choice(op, ()))
            elif optional.calls:
                chains = (
                    optional.away(state, self._used, by)
                    if kind == _MISS
                    else optional.chains(state, asks, self._used, by)
                )
                found += [_Choice(op, chain) for chain in chains]
        found = [choice for choice in found if not self._loses(choice)]
        if len(found) > 1:
            # Whoever answers first must be explained first: by itself, or by what it asks for.
            wanted = -1 if self._kinds[first_answer] == _WRITE else self._asks[first_answer]
            found.sort(
                key=lambda choice: (
                    self._puts[choice.op] != wanted and choice.op != first_answer,
                    len(choice.optional),
                    self._dones[choice.op],
                )
            )
        return found

    def _loses(self, choice: _Choice) -> bool:
        """Whether a value would be gone for good that an operation still asks for."""
        kind, asks, puts = self._kinds[choice.op], self._asks[choice.op], self._puts[choice.op]
        passed = [self._state, *(self._optional.puts[number] for number in choice.optional)]
        after = puts if kind in (_WRITE, _SWAP) else passed[-1]
        for value in passed:
            askers = self._askers[value] - (kind in (_READ, _SWAP) and asks == value)
            if askers and value != after:
                makers = self._makers[value] - sum(
                    self._optional.puts[number] == value for number in choice.optional
                )
                if not makers:
                    return True
        return False

    def _go(self, choice: _Choice) -> None:
        op = choice.op
        for number in choice.optional:
            self._used += self._optional.units[number]
            self._state = self._optional.puts[number]
            self._makers[self._state] -= 1
        if self._kinds[op] == _WRITE and not self._misses:
            self._take_idle_writes(but=op)
        if self._kinds[op] in (_WRITE, _SWAP):
            self._state = self._puts[op]
        self._take(op)

    def _take_idle_writes(self, *, but: int) -> None:
        """What is overwritten at once, and by whom nobody asks, may as well come now."""
        entry = self._next[2 * self._count]
        while entry < self._count:
            if entry != but and self._kinds[entry] == _WRITE and self._is_idle(self._puts[entry]):
                entry = self._take(entry)
            else:
                entry = self._next[entry]

    def _take(self, op: int) -> int:
        """Take it off the ring.  Returns the entry after its call, which may not be its own answer."""
        following, previous = self._next, self._prev
        for entry in (op, self._count + op):
            before, after = previous[entry], following[entry]
            following[before], previous[after] = after, before
        self._count_op(self._kinds[op], self._asks[op], self._puts[op], -1)
        self._taken.append(op)
        ahead = self._ahead | 1 << (op - self._first)
        if ahead & 1:
            steps = (~ahead & (ahead + 1)).bit_length() - 1
            ahead >>= steps
            self._first += steps
        self._ahead = ahead
        return following[previous[op]]

    def _back_to(self, frame: _Frame) -> None:
        following, previous = self._next, self._prev
        while len(self._taken) > frame.taken:
            op = self._taken.pop()
            for entry in (self._count + op, op):
                following[previous[entry]] = previous[following[entry]] = entry
            self._count_op(self._kinds[op], self._asks[op], self._puts[op], 1)
        self._give_back(self._used - frame.used)
        self._first, self._ahead, self._state, self._used = frame[1:5]

    def _give_back(self, used: int) -> None:
        """Optional operations that were taken may be taken again."""
        for number in range(len(self._optional.units) - 1, -1, -1) if used else ():
            count, used = divmod(used, self._optional.units[number])
            self._makers[self._optional.puts[number]] += count


def _numbers(known: Sequence[Op], unknown: Sequence[Op]) -> dict[bytes | None, int]:
    """A number for each value that somebody asks for, from 1 on."""
    numbers: dict[bytes | None, int] = {}
    for op in (*known, *unknown):
        if op.kind != "write":
            asked = op.value if op.kind == "read" else op.expected
            numbers.setdefault(asked, len(numbers) + 1)
    return numbers


def _ring(calls: Sequence[float], dones: Sequence[float]) -> tuple[list[int], list[int]]:
    """Calls and answers in the order of time, calls first where it is the same; as links both ways."""
    count = len(calls)
    times = [*calls, *dones]
    # Calls have the smaller numbers and sorting is stable: they stay before answers of the same time.
    order = sorted(range(2 * count), key=times.__getitem__)
    following, previous = [0] * (2 * count + 1), [0] * (2 * count + 1)
    last = 2 * count
    for entry in (*order, 2 * count):
        following[last], previous[entry] = entry, last
        last = entry
    return following, previous
