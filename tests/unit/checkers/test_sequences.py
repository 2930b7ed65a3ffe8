"""Sequence numbers: unique for a parent, growing with the zxid and with time."""

from __future__ import annotations

import pytest

from tests.checkers.sequences import Created, check_sequences


def node(number: int, zxid: int | None = None, *, prefix: str = "n-", parent: str = "/p") -> Created:
    return Created(parent, f"{prefix}{number:010d}", zxid)


def test_numbers_may_be_left_out_and_come_in_any_order_of_recording() -> None:
    verdict = check_sequences([node(7, 30), node(0, 10), node(3, 20), node(9)])
    assert verdict.ok, verdict.problem
    assert verdict.checked == 4


def test_plain_tuples_will_do() -> None:
    assert check_sequences([("/p", "n-0000000001", 5), ("/p", "n-0000000002", None)])


def test_nodes_of_one_multi_share_a_zxid() -> None:
    assert check_sequences([node(1, 10), node(2, 10), node(3, 11)])
    assert not check_sequences([node(1, 10), node(3, 10), node(2, 11)])


def test_parents_count_apart() -> None:
    assert check_sequences([node(0, 10, parent="/p"), node(0, 11, parent="/q")])


def test_a_number_given_twice_is_caught() -> None:
    verdict = check_sequences([node(1, 10), node(1, 11)])
    assert not verdict.ok
    assert "number 1 was given twice: to n-0000000001 (zxid 0xa) and to" in verdict.problem


def test_a_number_given_twice_under_two_names_is_caught() -> None:
    assert "given twice" in check_sequences([node(1, 10), node(1, 11, prefix="other-")]).problem


def test_a_number_that_goes_back_is_caught() -> None:
    verdict = check_sequences([node(1, 10), node(5, 11), node(4, 12)])
    assert verdict.problem == (
        "/p: n-0000000004 (zxid 0xc) came after n-0000000005 (zxid 0xb), with a smaller number"
    )


def test_a_number_that_goes_back_in_time_is_caught() -> None:
    earlier = node(5)._replace(call=0.0, done=1.0)
    assert check_sequences([earlier, node(4)._replace(call=0.5, done=2.0)]), "they overlap"
    verdict = check_sequences([earlier, node(4)._replace(call=1.5, done=2.0)])
    assert verdict.problem == "/p: n-0000000004 was asked for after n-0000000005 was acknowledged"


def test_a_name_without_a_number_is_refused() -> None:
    with pytest.raises(ValueError, match="ten digits"):
        check_sequences([("/p", "n-12", 1)])
