"""A member without data: when it may begin a new cell, and when it must be replaced instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from quoracy.server.cell.bootstrap import (
    Add,
    Begin,
    Join,
    KnownMember,
    Replace,
    View,
    Wait,
    initial_cluster,
    next_step,
)
from quoracy.server.cell.config import CellConfig, parse_members

CONFIG = CellConfig(
    "x", parse_members("a=10.0.0.1,b=10.0.0.2,c=10.0.0.3"), node="a", data_dir=Path("/data")
)
EMPTY = View()


def known(
    name: str, number: int, *, ran: bool = True, added: bool = False, id: int | None = None
) -> KnownMember:
    return KnownMember(
        id=number if id is None else id,
        name="" if added else name,
        peer_urls=(f"http://10.0.0.{number}:2380",),
        client_urls=(f"http://10.0.0.{number}:2381",) if ran and not added else (),
    )


A, B, C = known("a", 1), known("b", 2), known("c", 3)
NEW_A, NEW_B, NEW_C = (known(name, n, ran=False) for n, name in enumerate("abc", 1))
ADDED_A = known("a", 1, added=True, id=77)


def waits(step: object) -> str:
    assert isinstance(step, Wait), step
    return step.why


# -- with the word of a quorum


def test_member_that_ran_before_is_replaced() -> None:
    assert next_step(CONFIG, {}, [A, B, C]) == Replace(A)


def test_member_that_ran_at_another_address_is_found_by_its_name() -> None:
    moved = KnownMember(9, "a", ("http://10.9.9.9:2380",), ("http://10.9.9.9:2381",))
    assert next_step(CONFIG, {}, [moved, B, C]) == Replace(moved)


def test_member_that_was_removed_is_added_again() -> None:
    assert next_step(CONFIG, {}, [B, C]) == Add()


def test_member_that_was_added_but_never_started_joins() -> None:
    step = next_step(CONFIG, {}, [ADDED_A, B, C])
    assert step == Join({f"{name}": f"http://10.0.0.{n}:2380" for n, name in enumerate("abc", 1)})


def test_member_whose_first_start_is_still_awaited_begins() -> None:
    """The others were quicker, and are enough to have a quorum."""
    assert next_step(CONFIG, {}, [NEW_A, B, C]) == Begin()


# -- without


def test_new_cell_begins_when_all_members_are_there_and_empty() -> None:
    assert next_step(CONFIG, {"b": EMPTY, "c": EMPTY}, None) == Begin()


def test_new_cell_begins_when_others_have_begun_already() -> None:
    begun = View((NEW_A, NEW_B, NEW_C))
    assert next_step(CONFIG, {"b": begun, "c": EMPTY}, None) == Begin()


def test_member_alone_begins_at_once() -> None:
    alone = CellConfig("x", parse_members("a=10.0.0.1"), "a", Path("/data"))
    assert next_step(alone, {}, None) == Begin()


def test_new_cell_waits_for_whoever_was_not_heard() -> None:
    """That one may have the data of an older cell, in which we have voted."""
    assert "c (10.0.0.3:2380)" in waits(next_step(CONFIG, {"b": EMPTY}, None))
    assert "b (10.0.0.2:2380)" in waits(next_step(CONFIG, {}, None))


@pytest.mark.parametrize(
    "view",
    [
        View((A, B, C)),  # knew us
        View((B, C)),  # knows that we were removed
        View((ADDED_A, B, C)),  # waits for us, but may be behind the times
    ],
    ids=["ran", "removed", "added"],
)
def test_nothing_is_done_in_a_cell_that_exists_but_has_no_quorum(view: View) -> None:
    for heard in ({"b": view}, {"b": view, "c": EMPTY}, {"b": view, "c": view}):
        assert "only when most of the other members are up" in waits(next_step(CONFIG, heard, None))


def test_initial_cluster_has_who_is_there_and_nobody_else() -> None:
    stranger = KnownMember(0xABC, "", ("http://10.0.0.9:2380",))
    assert initial_cluster(CONFIG, [ADDED_A, B, stranger]) == {
        "a": "http://10.0.0.1:2380",
        "b": "http://10.0.0.2:2380",
        "member-abc": "http://10.0.0.9:2380",
    }
