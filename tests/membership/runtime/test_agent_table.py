"""The table of members: what is known, what is cut, what is escaped."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from quoracy.cli.membership.members import cells_of, headline, json_report, screen_of, warnings
from quoracy.membership.runtime.queries import AgentReport, MemberReport


def report(members_count: int = 3, **fields: object) -> AgentReport:
    members = [
        MemberReport(
            name=f"m{number}",
            address=f"10.0.0.{number}:7946",
            state="alive" if number else "suspect",
            incarnation=number,
            since_s=1.0,
            phi=0.5,
            rtt_s=0.001,
            meta={"zone": "a-rather-long-name-of-a-zone"},
        )
        for number in range(members_count)
    ]
    whole = {
        "name": "m0",
        "address": "10.0.0.0:7946",
        "uptime_s": 5.0,
        "health": 0,
        "health_max": 7,
        "is_encrypted": True,
        "members": members,
        "protocol": {},
        "traffic": {},
        "dropped": {},
    }
    return AgentReport(**{**whole, **fields})  # type: ignore[arg-type]


def shown(report: AgentReport | None, *, width: int, height: int, note: str = "") -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=height, highlight=False, markup=False)
    console.print(screen_of(report, note=note, height=height))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_what_is_not_known_is_a_dash() -> None:
    member = MemberReport(name="a", address="10.0.0.1:1", state="alive", incarnation=1)
    assert cells_of(member) == ("a", "10.0.0.1:1", "alive", "-", "1", "-", "-", "")


def test_text_of_others_cannot_move_the_cursor() -> None:
    member = MemberReport(
        name="\x1b[2J", address="a\n:1", state="alive", incarnation=1, meta={"\r": "\x07"}
    )
    cells = cells_of(member)
    assert all(cell.isprintable() for cell in cells)
    assert cells[0] == r"\x1b[2J"


def test_the_headline_counts_and_warnings_come_only_when_there_is_something_wrong() -> None:
    assert headline(report()) == "m0 at 10.0.0.0:7946 sees 2 alive, 1 suspect; encrypted"
    assert warnings(report()) == []
    ill = report(health=3, dropped={"too old": 2, "wrong key": 40})
    assert [warning.split(":")[0] for warning in warnings(ill)] == [
        "It is not well itself (health 3 of 7)",
        "It dropped 42 packets and messages, most of them as",
    ]


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
@pytest.mark.parametrize("height", [4, 10, 50])
def test_the_screen_is_never_higher_than_the_window_whatever_its_width(width: int, height: int) -> None:
    lines = shown(report(30, health=1), width=width, height=height, note="no answer")
    assert len(lines) <= max(height, 5)  # a headline, what is wrong, and that there is more
    assert all(len(line) <= width for line in lines)


def test_what_does_not_fit_is_counted() -> None:
    lines = shown(report(30), width=100, height=10)
    assert lines[-1].strip() == "... and 23 more"
    assert len(shown(report(3), width=100, height=10)) == 5


def test_json_has_every_number() -> None:
    document = json_report(report(dropped={"wrong key": 1}))
    assert document["dropped"] == {"wrong key": 1}
    members = document["members"]
    assert isinstance(members, list)
    assert members[1]["rtt_s"] == 0.001
