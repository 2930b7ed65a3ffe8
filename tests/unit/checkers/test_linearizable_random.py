"""The search agrees with trying every order, passes what is atomic, and catches what is made wrong."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.checkers.history import Op
from tests.checkers.linearizable import check_registers, shortest_unexplained
from tests.checkers.search import is_explained
from tests.checkers.telling import told
from tests.unit.checkers.simulated import CARRIED, Carried, Load, simulate

_SMALL = 4_000
_SETTINGS = settings(deadline=None, derandomize=True, max_examples=500)
_SEEDS = st.integers(min_value=0, max_value=2**32)
_LOADS = st.builds(
    Load,
    clients=st.integers(1, 10),
    operations=st.integers(1, 80),
    keys=st.integers(1, 2),
    values=st.sampled_from([None, None, 2, 4]),
    lost=st.sampled_from([0.0, 0.05, 0.3]),
    deletes=st.sampled_from([0.0, 0.2]),
    writes=st.sampled_from([0.1, 0.3]),
    swaps=st.sampled_from([0.0, 0.3, 0.6]),
    revisions=st.sampled_from(CARRIED),
)


# -- every order, tried one by one


def small_history(seed: int) -> list[Op]:
    """Few operations and few values, much at the same time; atomic, or with one answer changed."""
    rng = random.Random(seed)
    load = Load(
        clients=rng.randint(2, 5),
        operations=rng.randint(2, 8),
        values=rng.randint(1, 3),
        lost=rng.choice((0.0, 0.2, 0.5)),
        writes=rng.choice((0.3, 0.6)),
        swaps=rng.choice((0.1, 0.4)),
        deletes=rng.choice((0.0, 0.3)),
        revisions="none",
    )
    ops = simulate(load, rng)
    answered = [at for at, op in enumerate(ops) if op.done is not None and op.kind != "write"]
    if answered and rng.random() < 0.8:
        at = rng.choice(answered)
        if ops[at].kind == "cas":
            ops[at] = replace(ops[at], ok=not ops[at].ok)
        else:
            ops[at] = replace(ops[at], value=rng.choice((None, b"0", b"1", b"2")))
    return ops


def explained_by_trying(left: Sequence[Op], state: bytes | None) -> bool:
    """Whether any order of what is left explains it; nothing is cut, nothing remembered."""
    answered = [op for op in left if op.done is not None]
    return not answered or any(
        explained_by_trying([other for other in left if other is not op], after)
        for op in left
        if all(other.done is None or other.done >= op.call for other in left)
        for after in outcomes(op, state)
    )


def outcomes(op: Op, state: bytes | None) -> list[bytes | None]:
    """What the register may hold after the operation; nothing if its answer was another."""
    if op.kind == "write":
        return [op.value]
    if op.kind == "read":
        return [state] if op.done is None or op.value == state else []
    took = op.expected == state
    if op.done is not None and took != op.ok:
        return []
    return [op.value if took else state]


def test_the_search_agrees_with_trying_every_order() -> None:
    soon = time.thread_time() + 100
    verdicts = Counter[bool]()
    for seed in range(_SMALL):
        ops = small_history(seed)
        found = is_explained(ops, initial=None, give_up_at=soon)
        assert found == explained_by_trying(ops, None), f"seed {seed}: {told(ops)}"
        verdicts[found] += 1
    assert min(verdicts[True], verdicts[False]) > _SMALL // 10, "one verdict is hardly tried"


def test_the_shortest_prefix_is_the_shortest() -> None:
    soon = time.thread_time() + 100
    for seed in range(_SMALL // 10):
        ops = small_history(seed)
        if is_explained(ops, initial=None, give_up_at=soon):
            continue
        prefix = shortest_unexplained(ops, initial=None, give_up_at=soon)
        assert not explained_by_trying(prefix, None), f"seed {seed}"
        end = prefix[-1].done
        assert end == max(op.done for op in prefix if op.done is not None)
        before = [replace(op, done=None) if op.done == end else op for op in prefix]
        assert explained_by_trying(before, None), f"seed {seed}"


# -- what is atomic passes


@settings(_SETTINGS, max_examples=400)
@given(_LOADS, _SEEDS)
def test_atomic_registers_pass(load: Load, seed: int) -> None:
    verdict = check_registers(simulate(load, random.Random(seed)))
    assert verdict.ok, verdict.problem
    assert verdict.checked == load.operations


@pytest.mark.parametrize("carried", CARRIED)
def test_long_histories_pass(carried: Carried) -> None:
    load = Load(clients=20, operations=3_000, keys=3, lost=0.02, revisions=carried)
    verdict = check_registers(simulate(load, random.Random(7)))
    assert verdict.ok, verdict.problem


# -- what is made wrong is caught


def never_written(ops: list[Op], rng: random.Random) -> list[Op] | None:
    """A read answers with a value that nobody wrote."""
    reads = [op for op in ops if op.kind == "read" and op.done is not None]
    if not reads:
        return None
    wrong = rng.choice(reads)
    return [replace(op, value=b"never") if op is wrong else op for op in ops]


def overwritten_before(ops: list[Op], rng: random.Random) -> list[Op] | None:
    """A read answers with a value that another had replaced before it was called."""
    writes = [op for op in ops if op.kind == "write" and op.done is not None]
    for wrong in rng.sample(ops, len(ops)):
        if wrong.kind == "read" and wrong.done is not None:
            for newer in writes:
                older = [op for op in writes if (op.done or 0) < newer.call]
                if older and (newer.done or 0) < wrong.call:
                    stale = rng.choice(older).value
                    return [replace(op, value=stale) if op is wrong else op for op in ops]
    return None


def swapped_twice(ops: list[Op], rng: random.Random) -> list[Op] | None:
    """Two compares took that both expected a value which was there once."""
    swaps = [op for op in ops if op.kind == "cas" and op.ok and op.done and op.expected is not None]
    if len(swaps) < 2:
        return None
    first, wrong = rng.sample(swaps, 2)
    return [replace(op, expected=first.expected) if op is wrong else op for op in ops]


def acknowledged_and_lost(ops: list[Op], rng: random.Random) -> list[Op] | None:
    """After all is over a read answers as if the last acknowledged write had not been."""
    writes = [op for op in ops if op.kind == "write" and op.done is not None]
    older = [op for op in writes if op.done is not None and op.done < writes[-1].call]
    if not older:
        return None
    end = 1e6
    return [*ops, Op(99, end, end + 1, "read", ops[0].key, older[-1].value)]


Fault = Callable[[list[Op], random.Random], list[Op] | None]
_FAULTS: tuple[Fault, ...] = (never_written, overwritten_before, swapped_twice, acknowledged_and_lost)


@settings(_SETTINGS, max_examples=400)
@given(st.integers(1, 8), st.sampled_from([0.0, 0.1]), st.sampled_from(CARRIED), _SEEDS)
def test_one_wrong_answer_is_caught(clients: int, lost: float, carried: Carried, seed: int) -> None:
    rng = random.Random(seed)
    ops = simulate(Load(clients=clients, operations=60, lost=lost, revisions=carried), rng)
    fault = rng.choice(_FAULTS)
    wrong = fault(ops, rng)
    if wrong is None:
        return
    verdict = check_registers(wrong)
    assert verdict.problem.startswith("key-0: not linearizable"), fault


@pytest.mark.parametrize("fault", _FAULTS)
def test_one_wrong_answer_in_a_long_history_is_caught(fault: Fault) -> None:
    rng = random.Random(11)
    ops = simulate(Load(clients=15, operations=1_000, lost=0.02, revisions="none"), rng)
    wrong = next(made for _ in range(100) if (made := fault(ops, rng)) is not None)
    verdict = check_registers(wrong)
    assert verdict.problem.startswith("key-0: not linearizable"), verdict.problem
