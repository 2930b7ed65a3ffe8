"""`quoracy lease` on a data file."""

from __future__ import annotations

import pytest

from quoracy.cli.text import format_lease, parse_lease
from quoracy.errors import InvalidRequest
from tests.unit.cli.asking import Ask


def test_key_goes_with_its_lease(ask: Ask) -> None:
    lease = ask("lease", "grant", "60").lines[0]
    ask("put", "members/ada", "up", "--lease", lease)
    assert ask("get", "members/ada", "-o", "json").json["kvs"][0]["lease"] == lease
    held = ask("lease", "ttl", lease, "--keys")
    assert held.rows[0][1] == "60"
    assert held.lines[1:] == ["members/ada"]
    assert ask("lease", "revoke", lease).code == 0
    assert ask("get", "members/ada").code == 3


def test_list_has_time_left_and_number_of_keys(ask: Ask) -> None:
    ask("lease", "grant", "1m", "--id", "ff")
    ask("put", "a", "1", "--lease", "ff")
    ask("put", "b", "1", "--lease", "0xff")
    ((lease, _, ttl, keys),) = ask("lease", "list").rows
    assert (lease, ttl, keys) == ("00000000000000ff", "60", "2")
    assert ask("lease", "list", "-o", "json").json["leases"][0]["keys_count"] == 2


def test_taken_id_is_refused(ask: Ask) -> None:
    ask("lease", "grant", "60", "--id", "ff")
    said = ask("lease", "grant", "60", "--id", "ff")
    assert (said.code, said.err.count("\n")) == (1, 1)


def test_keep_alive_once_says_for_how_long(ask: Ask) -> None:
    ask("lease", "grant", "60", "--id", "ff")
    assert ask("lease", "keep-alive", "ff", "--once").lines == ["00000000000000ff renewed for 60 s"]


@pytest.mark.parametrize(
    "verb", [["revoke"], ["ttl"], ["keep-alive"], ["keep-alive", "--once"]], ids=" ".join
)
def test_unknown_lease_is_exit_code_3(ask: Ask, verb: list[str]) -> None:
    ask("put", "k", "v")
    said = ask("lease", *verb, "1234")
    assert (said.code, said.err.count("\n")) == (3, 1)
    assert "1234" in said.err


@pytest.mark.parametrize("lease", [1, 0x32695410DCC0CA06, 2**63 - 1, -1, -(2**63)])
def test_ids_survive_being_written_down(lease: int) -> None:
    assert parse_lease(format_lease(lease)) == lease


@pytest.mark.parametrize("text", ["", "0", "x", "1" * 17, "-1", "0x"])
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="hexadecimal"):
        parse_lease(text)
