"""Locks: tokens that go back, former holders that get through and lost updates are caught."""

from __future__ import annotations

from tests.checkers.history import Verdict
from tests.checkers.locking import Grant, GuardedWrite, check_locking

FIRST = Grant("l", 1, 10, asked=0.0, granted=1.0)
SECOND = Grant("l", 2, 20, asked=0.5, granted=3.0)
THIRD = Grant("l", 1, 30, asked=4.0, granted=5.0)
GRANTS = [FIRST, SECOND, THIRD]


def write(grant: Grant, saw: bytes | None, wrote: bytes, *, accepted: bool = True) -> GuardedWrite:
    return GuardedWrite(grant.lock, grant.client, grant.token, saw, wrote, accepted)


def problem(verdict: Verdict) -> str:
    assert not verdict.ok
    return verdict.problem


def test_holders_one_after_another_pass() -> None:
    writes = [write(FIRST, None, b"1"), write(FIRST, b"1", b"2"), write(SECOND, b"2", b"3")]
    verdict = check_locking(GRANTS, [*writes, write(THIRD, b"3", b"4")])
    assert verdict.ok, verdict.problem
    assert verdict.checked == 7


def test_a_former_holder_that_is_refused_is_well() -> None:
    writes = [write(SECOND, None, b"1"), write(FIRST, None, b"x", accepted=False)]
    assert check_locking(GRANTS, writes)


def test_grants_that_overlap_may_have_any_order() -> None:
    late = Grant("l", 3, 15, asked=0.9, granted=20.0)  # noticed long after, when others held it
    assert check_locking([*GRANTS, late], [])


def test_a_token_that_goes_back_is_caught() -> None:
    back = Grant("l", 3, 15, asked=3.5, granted=9.0)
    assert "l: the token went back: client 3 asked at 3.500000 and got 15" in problem(
        check_locking([*GRANTS, back], [])
    )


def test_a_token_given_twice_is_caught() -> None:
    twin = Grant("l", 3, 20, asked=0.5, granted=3.0)
    verdict = check_locking([*GRANTS, twin], [])
    assert "token 20 was given to client 2 and to client 3" in problem(verdict)


def test_locks_count_apart() -> None:
    assert check_locking([*GRANTS, Grant("m", 3, 10, asked=9.0, granted=9.5)], [])


def test_a_former_holder_that_gets_through_is_caught() -> None:
    writes = [write(SECOND, None, b"1"), write(FIRST, b"1", b"2")]
    assert "accepted from a former holder, after token 20" in problem(check_locking(GRANTS, writes))


def test_two_holders_at_once_are_caught() -> None:
    writes = [write(FIRST, None, b"1"), write(SECOND, b"1", b"2"), write(FIRST, b"2", b"3")]
    assert "write 3 (client 1, token 10, b'2' to b'3'): accepted from" in problem(
        check_locking(GRANTS, writes)
    )


def test_a_lost_update_is_caught() -> None:
    writes = [write(FIRST, None, b"1"), write(SECOND, None, b"1'")]
    assert "an update is lost, the resource held b'1'" in problem(check_locking(GRANTS, writes))


def test_what_the_resource_holds_at_first_can_be_told() -> None:
    assert check_locking(GRANTS, [write(FIRST, b"0", b"1")], initial=b"0")
    assert not check_locking(GRANTS, [write(FIRST, b"0", b"1")])


def test_a_write_without_a_grant_is_caught() -> None:
    stranger = GuardedWrite("l", 5, 99, None, b"1", True)
    assert "nobody was granted that token" in problem(check_locking(GRANTS, [stranger]))


def test_a_write_with_the_token_of_another_is_caught() -> None:
    thief = GuardedWrite("l", 2, 10, None, b"1", True)
    assert "that token was granted to client 1" in problem(check_locking(GRANTS, [thief]))


def test_a_refusal_without_reason_is_caught() -> None:
    refused = write(THIRD, None, b"1", accepted=False)
    assert "no larger token was ever granted" in problem(check_locking(GRANTS, [refused]))
