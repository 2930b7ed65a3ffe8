"""What every gate promises, whatever keeps it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator

import pytest

import quoracy
from quoracy.errors import InvalidRequest, StaleToken, TooLarge
from quoracy.fencing import RESOURCE_BYTES_MAX, TOKEN_MAX, Gate, MemoryGate, SqliteGate
from tests.fencing.conftest import Where
from tests.fencing.gates import SHARED, open_gate


@pytest.fixture(params=["memory", *SHARED])
async def gate(request: pytest.FixtureRequest, where: Where) -> AsyncIterator[Gate]:
    async with open_gate(request.param, where(request.param)) as gate:
        yield gate


async def test_larger_and_equal_tokens_are_admitted_and_lower_ones_refused(gate: Gate) -> None:
    await gate.admit("orders", 5)
    await gate.admit("orders", 5)
    await gate.admit("orders", 8)
    for token in (0, 5, 7):
        with pytest.raises(StaleToken) as refused:
            await gate.admit("orders", token)
        assert (refused.value.token, refused.value.highest) == (token, 8)
    await gate.admit("orders", 8)


async def test_refusal_says_which_resource_and_is_a_rejection(gate: Gate) -> None:
    await gate.admit("orders", 2)
    with pytest.raises(quoracy.Rejected, match="stale") as refused:
        await gate.admit("orders", 1)
    assert isinstance(refused.value, StaleToken)


async def test_resources_do_not_know_of_each_other(gate: Gate) -> None:
    await gate.admit("orders", 9)
    await gate.admit("orders2", 1)
    await gate.admit("order", 1)
    with pytest.raises(StaleToken):
        await gate.admit("orders", 8)


async def test_first_token_of_a_resource_may_be_zero(gate: Gate) -> None:
    await gate.admit("orders", 0)
    await gate.admit("orders", 1)
    with pytest.raises(StaleToken):
        await gate.admit("orders", 0)


# Neighbours that a double cannot tell apart, that differ in length, and the largest there is.
@pytest.mark.parametrize("token", [10, 2**31, 2**53 + 1, 10**15, 10**18, TOKEN_MAX])
async def test_large_tokens_are_compared_exactly(gate: Gate, token: int) -> None:
    await gate.admit("orders", token - 1)
    await gate.admit("orders", token)
    with pytest.raises(StaleToken) as refused:
        await gate.admit("orders", token - 1)
    assert refused.value.highest == token


@pytest.mark.parametrize("token", [-1, TOKEN_MAX + 1, True, 1.0, "7", None])
async def test_what_is_no_token_is_refused(gate: Gate, token: object) -> None:
    with pytest.raises(InvalidRequest, match="is no fencing token"):
        await gate.admit("orders", token)  # type: ignore[arg-type]
    await gate.admit("orders", 0)


@pytest.mark.parametrize("resource", ["ö" * (RESOURCE_BYTES_MAX // 2), "a b/c%d{}'\"\n:1", "注文"])
async def test_any_name_within_the_limit_is_a_resource(gate: Gate, resource: str) -> None:
    await gate.admit(resource, 5)
    with pytest.raises(StaleToken):
        await gate.admit(resource, 4)


# Files have names of their own, longer than the resource: what is too long for them is the path.
@pytest.mark.parametrize("kind", [kind for kind in ("memory", *SHARED) if kind != "file"])
@pytest.mark.parametrize("resource", ["", "x" * (RESOURCE_BYTES_MAX + 1), "a\0b", "\ud800"])
async def test_what_cannot_name_a_resource_is_refused(kind: str, resource: str, where: Where) -> None:
    async with open_gate(kind, where(kind)) as gate:
        with pytest.raises(InvalidRequest, match="cannot name a resource"):
            await gate.admit(resource, 5)


async def test_many_tasks_at_once_see_one_highest(gate: Gate) -> None:
    tokens = [7, 3, 9, 1, 8, 9, 2, 6]
    outcomes = await asyncio.gather(
        *(gate.admit("orders", token) for token in tokens), return_exceptions=True
    )
    assert all(
        outcome is None for token, outcome in zip(tokens, outcomes, strict=True) if token == max(tokens)
    )
    assert all(outcome is None or isinstance(outcome, StaleToken) for outcome in outcomes)
    with pytest.raises(StaleToken) as refused:
        await gate.admit("orders", 0)
    assert refused.value.highest == 9


@pytest.mark.parametrize("kind", SHARED)
async def test_what_one_opening_has_seen_the_next_one_knows(kind: str, where: Where) -> None:
    place = where(kind)
    async with open_gate(kind, place) as gate:
        await gate.admit("orders", 5)
    async with open_gate(kind, place) as gate:
        with pytest.raises(StaleToken):
            await gate.admit("orders", 4)
        await gate.admit("orders", 5)


def test_memory_gate_at_its_bound_refuses_new_resources_and_forgets_none() -> None:
    gate = MemoryGate(resources_max=2)
    gate.admit_sync("a", 5)
    gate.admit_sync("b", 5)
    with pytest.raises(TooLarge, match="resources_max") as refused:
        gate.admit_sync("c", 5)
    assert (refused.value.size, refused.value.size_max) == (3, 2)
    gate.admit_sync("a", 6)
    for resource in ("a", "b"):
        with pytest.raises(StaleToken):
            gate.admit_sync(resource, 4)


def test_memory_gate_without_a_bound_takes_whatever_comes() -> None:
    gate = MemoryGate(resources_max=None)
    for number in range(100_001):
        gate.admit_sync(str(number), 1)
    with pytest.raises(StaleToken):
        gate.admit_sync("0", 0)


def test_memory_gate_never_lets_a_lower_token_follow_a_larger_one_among_threads() -> None:
    gate, together = MemoryGate(), threading.Barrier(4)
    failures: list[str] = []

    def work(mine: int) -> None:
        together.wait(10)
        for token in range(mine, 4_000, 4):
            try:
                gate.admit_sync("orders", token)
            except StaleToken as stale:
                if stale.highest <= token:
                    failures.append(f"{token} refused at {stale.highest}")
                continue
            try:
                gate.admit_sync("orders", token - 1)
                failures.append(f"{token - 1} admitted after {token}")
            except StaleToken:
                continue

    threads = [threading.Thread(target=work, args=(mine,)) for mine in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert failures == []


async def test_gates_of_one_process_may_be_used_from_tasks_and_threads_alike(where: Where) -> None:
    for gate in (MemoryGate(), SqliteGate(f"{where('sqlite')}/both.db")):
        await gate.admit("orders", 5)
        await asyncio.to_thread(gate.admit_sync, "orders", 6)
        with pytest.raises(StaleToken):
            await gate.admit("orders", 5)


def test_importing_gates_needs_none_of_the_packages_they_may_be_used_with() -> None:
    program = (
        "import sys, quoracy.fencing as fencing\n"
        "assert [name for name in fencing.__all__ if not hasattr(fencing, name)] == []\n"
        "print({'redis', 'psycopg', 'httpx', 'msgspec'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "set()\n"
