"""When a transaction succeeds: every target, every relation, on one key and on every key of a range."""

from __future__ import annotations

import itertools
from typing import Literal, get_args

import pytest

from quoracy.errors import InvalidRequest
from quoracy.store.api import Store
from quoracy.store.model import (
    Compare,
    CompareTarget,
    KeyRange,
    Keys,
    LeaseId,
    Put,
    PutResult,
    Range,
    RangeResult,
    Relation,
    RelationSign,
    Txn,
    TxnResult,
)
from tests.support.asking import EVERYTHING, contents

_SIGNS: tuple[RelationSign, ...] = get_args(RelationSign)
_Where = Literal["below", "same", "above"]

# Which relations hold when what the key has is below, the same as, or above the operand.
_HOLDS: dict[_Where, set[RelationSign]] = {
    "below": {"<", "!="},
    "same": {"="},
    "above": {">", "!="},
}

_LEASE = LeaseId(1000)


async def _holds(store: Store, *compares: Compare) -> bool:
    result = await store.txn(Txn(compares, then=(Range(b"k"),), otherwise=()))
    assert len(result.results) == (1 if result.succeeded else 0)
    return result.succeeded


@pytest.fixture
async def filled(store: Store) -> Store:
    """The key k: create_revision 3, mod_revision 5, version 3, value b"m", lease 1000."""
    lease = await store.grant(60, id=_LEASE)
    await store.put(b"other", b"")
    for value in (b"a", b"b", b"m"):
        await store.put(b"k", value, lease=lease.id)
    return store


@pytest.mark.parametrize(
    ("target", "operand", "where"),
    [
        (CompareTarget.VALUE, b"l", "above"),
        (CompareTarget.VALUE, b"", "above"),
        (CompareTarget.VALUE, b"m", "same"),
        (CompareTarget.VALUE, b"m\0", "below"),
        (CompareTarget.VALUE, b"n", "below"),
        (CompareTarget.VERSION, 2, "above"),
        (CompareTarget.VERSION, 3, "same"),
        (CompareTarget.VERSION, 4, "below"),
        (CompareTarget.CREATE, 2, "above"),
        (CompareTarget.CREATE, 3, "same"),
        (CompareTarget.CREATE, 4, "below"),
        (CompareTarget.MOD, 4, "above"),
        (CompareTarget.MOD, 5, "same"),
        (CompareTarget.MOD, 6, "below"),
        (CompareTarget.LEASE, 0, "above"),
        (CompareTarget.LEASE, 1000, "same"),
        (CompareTarget.LEASE, 1001, "below"),
    ],
)
async def test_every_target_with_every_relation(
    filled: Store, target: CompareTarget, operand: bytes | int, where: _Where
) -> None:
    # In one store, since nothing is changed: a new one for each would be two hundred etcds.
    places: list[Keys] = [b"k", KeyRange.exactly(b"k"), KeyRange.prefix(b"k")]
    for keys, sign in itertools.product(places, _SIGNS):
        compare = Compare(keys, target, Relation(sign), operand)
        assert await _holds(filled, compare) == (sign in _HOLDS[where]), compare


@pytest.mark.parametrize(
    "target",
    [CompareTarget.VERSION, CompareTarget.CREATE, CompareTarget.MOD, CompareTarget.LEASE],
)
async def test_a_missing_key_and_an_empty_range_have_zero_everywhere(
    filled: Store, target: CompareTarget
) -> None:
    places: list[Keys] = [b"missing", KeyRange.prefix(b"missing/"), KeyRange(b"z", b"a")]
    operands: dict[_Where, int] = {"above": -1, "same": 0, "below": 1}
    for keys, sign, (where, operand) in itertools.product(places, _SIGNS, operands.items()):
        compare = Compare(keys, target, Relation(sign), operand)
        assert await _holds(filled, compare) == (sign in _HOLDS[where]), compare


@pytest.mark.parametrize("sign", _SIGNS)
@pytest.mark.parametrize("keys", [b"missing", KeyRange.prefix(b"missing/")])
async def test_a_compare_of_a_missing_value_is_always_false(
    filled: Store, keys: Keys, sign: RelationSign
) -> None:
    assert not await _holds(filled, Compare.value(keys, sign, b""))
    assert not await _holds(filled, Compare.value(keys, sign, b"m"))


async def test_a_deleted_key_is_missing(filled: Store) -> None:
    assert await _holds(filled, Compare.exists(b"k"))
    assert not await _holds(filled, Compare.missing(b"k"))
    await filled.delete(b"k")
    assert await _holds(filled, Compare.missing(b"k"))
    assert not await _holds(filled, Compare.exists(b"k"))
    assert not await _holds(filled, Compare.value(b"k", "=", b"m"))


async def test_a_range_holds_when_every_key_in_it_does(store: Store) -> None:
    for key, value in ((b"r/1", b"5"), (b"r/2", b"7"), (b"r/3", b"5"), (b"s", b"0")):
        await store.put(key, value)
    inside = KeyRange.prefix(b"r/")
    assert await _holds(store, Compare.value(inside, ">", b"4"))
    assert await _holds(store, Compare.value(inside, "<", b"8"))
    assert not await _holds(store, Compare.value(inside, "=", b"5"))
    assert not await _holds(store, Compare.value(inside, "!=", b"7"))
    assert await _holds(store, Compare.mod_revision(inside, "<", 5))
    assert not await _holds(store, Compare.mod_revision(EVERYTHING, "<", 5))
    assert await _holds(store, Compare.version(EVERYTHING, "=", 1))
    # The last key of the range decides as much as the first.
    await store.put(b"r/3", b"9")
    assert not await _holds(store, Compare.value(inside, "<", b"8"))
    assert not await _holds(store, Compare.version(inside, "=", 1))


async def test_every_compare_must_hold(filled: Store) -> None:
    yes, no = Compare.exists(b"k"), Compare.missing(b"k")
    assert await _holds(filled)
    assert await _holds(filled, yes, yes)
    assert not await _holds(filled, yes, no)
    assert not await _holds(filled, no, yes)


async def test_one_branch_runs_and_the_other_does_not(store: Store) -> None:
    for compare, succeeded, value in (
        (Compare.missing(b"k"), True, b"then"),
        (Compare.missing(b"k"), False, b"otherwise"),
    ):
        result = await store.txn(
            Txn((compare,), then=(Put(b"k", b"then"),), otherwise=(Put(b"k", b"otherwise"),))
        )
        assert (result.succeeded, await contents(store)) == (succeeded, {b"k": value})


async def test_nested_compares_look_at_the_state_before_the_transaction(store: Store) -> None:
    result = await store.txn(
        Txn(
            then=(
                Put(b"a", b"1"),
                Txn((Compare.missing(b"a"),), then=(Put(b"saw no a"),), otherwise=(Put(b"saw a"),)),
                Txn(
                    (Compare.exists(b"a"),),
                    then=(Put(b"deep: saw a"),),
                    otherwise=(
                        Txn((Compare.mod_revision(b"a", "=", 0),), then=(Put(b"deeper: saw no a"),)),
                    ),
                ),
            )
        )
    )
    assert result.succeeded
    assert set(await contents(store)) == {b"a", b"saw no a", b"deeper: saw no a"}


async def test_a_nested_transaction_reports_its_own_branch(store: Store) -> None:
    await store.put(b"k", b"v")
    result = await store.txn(
        Txn(
            (Compare.missing(b"k"),),
            otherwise=(
                Txn((Compare.exists(b"k"),), then=(Range(b"k"),)),
                Txn((Compare.missing(b"k"),), otherwise=(Put(b"made"), Txn())),
            ),
        )
    )
    assert not result.succeeded
    first, second = result.results
    assert isinstance(first, TxnResult)
    assert isinstance(second, TxnResult)
    assert (first.succeeded, second.succeeded) == (True, False)
    assert isinstance(first.results[0], RangeResult)
    assert [type(part) for part in second.results] == [PutResult, TxnResult]


@pytest.mark.parametrize(
    "compare",
    [
        Compare(b"k", CompareTarget.VALUE, Relation.EQUAL, 1),
        Compare(b"k", CompareTarget.VERSION, Relation.EQUAL, b"1"),
        Compare(b"", CompareTarget.VERSION, Relation.EQUAL, 1),
    ],
)
async def test_a_compare_that_makes_no_sense_is_refused(store: Store, compare: Compare) -> None:
    with pytest.raises(InvalidRequest):
        await store.txn(Txn((compare,), otherwise=(Put(b"k"),)))
    assert await contents(store) == {}
