"""Hearing: who was heard when, within a bound."""

from __future__ import annotations

import random

import pytest

from quoracy.membership.runtime.last_heard import Hearing


def test_silence_is_more_surprising_the_longer_it_lasts() -> None:
    hearing = Hearing(probe_interval_s=1.0)
    hearing.know("a", "a:1")
    rng = random.Random(1)
    now = 0.0
    for _ in range(100):
        now += rng.expovariate(0.5)
        hearing.packet_from("a:1", now)
    phis = [found.phi for later in (1.0, 10.0, 60.0) if (found := hearing.heard("a", now + later))]
    assert phis == sorted(phis)
    assert phis[0] < 1.0
    assert phis[2] > 8.0


def test_a_member_that_is_heard_rarely_by_its_nature_is_not_surprising() -> None:
    hearing = Hearing(probe_interval_s=1.0)
    for number in range(200):
        hearing.know(f"m{number}", f"m{number}:1")
    hearing.packet_from("m7:1", 0.0)
    heard = hearing.heard("m7", 100.0)  # the mean interval, with 200 members
    assert heard is not None
    assert heard.phi < 1.0


def test_what_comes_from_nobody_known_is_not_counted() -> None:
    hearing = Hearing(probe_interval_s=1.0)
    hearing.know("a", "a:1")
    hearing.packet_from("b:1", 1.0)
    assert len(hearing) == 0


def test_a_member_that_moved_is_heard_at_its_new_address_only() -> None:
    hearing = Hearing(probe_interval_s=1.0)
    hearing.know("a", "a:1")
    hearing.packet_from("a:1", 1.0)
    hearing.know("a", "a:2")
    hearing.packet_from("a:1", 2.0)
    assert hearing.heard("a", 3.0) is None
    hearing.packet_from("a:2", 4.0)
    heard = hearing.heard("a", 5.0)
    assert heard is not None
    assert heard.ago_s == pytest.approx(1.0)


def test_an_address_that_another_member_took_over_stays_its_own() -> None:
    hearing = Hearing(probe_interval_s=1.0)
    hearing.know("old", "x:1")
    hearing.know("new", "x:1")
    hearing.forget("old")
    hearing.packet_from("x:1", 1.0)
    assert hearing.heard("new", 1.0) is not None
    assert hearing.heard("old", 1.0) is None


def test_beyond_the_bound_the_one_heard_longest_ago_is_let_go_of() -> None:
    hearing = Hearing(probe_interval_s=1.0, members_max=2)
    for name in "abc":
        hearing.know(name, name)
    for number, name in enumerate("abac"):
        hearing.packet_from(name, float(number))
    assert len(hearing) == 2
    assert [name for name in "abc" if hearing.heard(name, 9.0)] == ["a", "c"]
    hearing.packet_from("b", 10.0)
    assert [name for name in "abc" if hearing.heard(name, 10.0)] == ["b", "c"]
