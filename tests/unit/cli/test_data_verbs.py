"""`put`, `get`, `del`, `ls`, `history` and `compact` on a data file."""

from __future__ import annotations

from pathlib import Path

import pytest

from quoracy.cli.read import grow
from quoracy.store.model import KeyValue
from tests.unit.cli.asking import Ask


def test_what_was_put_is_got(ask: Ask) -> None:
    assert ask("put", "config/colour", "green").code == 0
    said = ask("get", "config/colour")
    assert (said.code, said.out, said.err) == (0, b"green\n", "")


def test_missing_key_is_exit_code_3_and_one_line(ask: Ask) -> None:
    ask("put", "a", "1")
    said = ask("get", "b")
    assert (said.code, said.out) == (3, b"")
    assert said.err == "quoracy: b does not exist.\n"


def test_stdin_is_put_byte_for_byte_and_raw_gives_it_back(ask: Ask) -> None:
    value = b"line\n\x00\xff\x1b[2J\n"
    assert ask("put", "k", "-", stdin=value).code == 0
    assert ask("get", "k", "-o", "raw").out == value
    assert ask("get", "k", "-o", "value").out == value + b"\n"
    assert ask("get", "k", "--print-value-only").out == value + b"\n"


def test_lines_hold_one_key_each_whatever_is_in_it(ask: Ask) -> None:
    ask("put", "a/1", "-", stdin=b"two\nlines\tand \\ \x1b[31m \xff")
    ask("put", "a/2", "é")
    assert ask("get", "a/", "--prefix").lines == [
        "a/1\ttwo\\nlines\\tand \\\\ \\x1b[31m \\xff",
        "a/2\té",
    ]


def test_json_has_text_as_text_and_the_rest_as_base64(ask: Ask) -> None:
    ask("put", "t", "é")
    ask("put", "u", "-", stdin=b"\xff")
    kvs = ask("get", "", "--prefix", "-o", "json").json["kvs"]
    assert [(kv["key"], kv.get("value"), kv.get("value_base64")) for kv in kvs] == [
        ("t", "é", None),
        ("u", None, "/w=="),
    ]
    assert kvs[0]["mod_revision"] == 2


def test_ranges_limits_and_order(ask: Ask) -> None:
    for key in ("a", "b", "c", "d"):
        ask("put", key, key.upper())
    ask("put", "a", "again")
    assert ask("get", "b", "--from-key", "--keys-only").lines == ["b", "c", "d"]
    assert ask("get", "b", "--range", "d").rows == [["b", "B"], ["c", "C"]]
    assert ask("get", "", "--prefix", "--limit", "2", "--keys-only").lines == ["a", "b"]
    assert ask("get", "", "--prefix", "--sort", "mod", "--reverse", "--keys-only").lines[0] == "a"
    assert ask("get", "", "--prefix", "--count").out == b"4\n"
    assert ask("get", "a", "-l").rows == [["a", "2", "6", "2", "-", "again"]]


def test_at_reads_the_past_and_counts_back(ask: Ask) -> None:
    for value in ("one", "two", "three"):
        ask("put", "k", value)
    assert ask("get", "k", "--at", "2").out == b"one\n"
    assert ask("get", "k", "--at", "-1").out == b"two\n"
    said = ask("get", "k", "--at", "99")
    assert (said.code, said.err.count("\n")) == (1, 1)
    assert "does not exist yet" in said.err


@pytest.mark.parametrize(
    ("condition", "code"),
    [
        (["--if-missing"], 3),
        (["--if-mod", "2"], 0),
        (["--if-mod", "3"], 3),
        (["--if-version", "1"], 0),
        (["--if-version", "2"], 3),
        (["--if-mod", "2", "--if-version", "7"], 3),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_put_on_a_condition(ask: Ask, condition: list[str], code: int) -> None:
    ask("put", "k", "old")
    said = ask("put", "k", "new", *condition)
    assert said.code == code
    assert ask("get", "k").out == (b"old\n" if code else b"new\n")
    if code:
        assert (
            said.err == "quoracy: k was not written: it was written at revision 2 and is version 1.\n"
        )


def test_put_if_missing_creates(ask: Ask) -> None:
    assert ask("put", "k", "v", "--if-missing", "-o", "json").json == {"revision": 2, "written": True}
    lost = ask("put", "k", "w", "--if-missing", "-o", "json")
    assert (lost.code, lost.json["written"], lost.json["kv"]["value"]) == (3, False, "v")


def test_put_shows_what_was_there(ask: Ask) -> None:
    ask("put", "k", "old")
    assert ask("put", "k", "new", "--prev").out == b"old\n"


def test_delete_counts_and_shows(ask: Ask) -> None:
    for key in ("a/1", "a/2", "b"):
        ask("put", key, "v")
    assert ask("del", "a/", "--prefix", "--prev").rows == [["a/1", "v"], ["a/2", "v"]]
    assert ask("del", "b").out == b"1\n"
    nothing = ask("del", "b")
    assert (nothing.code, nothing.out) == (3, b"0\n")


@pytest.mark.parametrize("everything", [["", "--prefix"], ["", "--from-key"]], ids=" ".join)
def test_deleting_everything_needs_yes(ask: Ask, everything: list[str]) -> None:
    ask("put", "a", "1")
    refused = ask("del", *everything)
    assert refused.code == 2
    assert "--yes" in refused.err
    assert ask("get", "a").code == 0
    assert ask("del", *everything, "--yes").out == b"1\n"


def test_key_that_is_not_text_goes_through(ask: Ask) -> None:
    key = b"\xff\xfe".decode("utf-8", "surrogateescape")
    ask("put", key, "v")
    assert ask("get", key).out == b"v\n"
    assert ask("get", "", "--prefix").out == b"\\xff\\xfe\tv\n"
    assert ask("get", "", "--prefix", "-o", "json").json["kvs"][0]["key_base64"] == "//4="


def test_ls_lists_branches_with_counts_and_newest_change(ask: Ask) -> None:
    for key in ("a/b/1", "a/b/2", "a/c", "d"):
        ask("put", key, "v")
    assert ask("ls").rows == [
        ["a/", "3", "4"],
        ["a/b/", "2", "3"],
        ["a/b/1", "1", "2"],
        ["a/b/2", "1", "3"],
        ["a/c", "1", "4"],
        ["d", "1", "5"],
    ]
    assert ask("ls", "--depth", "1").rows == [["a/", "3", "4"], ["d", "1", "5"]]
    assert ask("ls", "a/b/", "-l").rows == [
        ["a/b/1", "1", "2", "1", "-", "1"],
        ["a/b/2", "1", "3", "1", "-", "1"],
    ]
    tree = ask("ls", "-o", "json", "--depth", "1").json
    assert [(each["path"], each["count"]) for each in tree["below"]] == [("a/", 3), ("d", 1)]
    assert ask("ls", "nothing/").code == 3


def test_tree_keeps_a_key_and_the_branch_of_its_name_apart() -> None:
    kvs = [KeyValue(key, b"", 2, 2, 1) for key in (b"/", b"a", b"a/", b"a//b")]
    root = grow(b"", kvs)
    assert (root.count, list(root.below)) == (4, [b"/", b"a", b"a/"])
    branch = root.below[b"a/"]
    assert (branch.kv, list(branch.below)) == (kvs[2], [b"/"])
    assert list(branch.below[b"/"].below) == [b"b"]


def test_history_has_every_version_and_deletes(ask: Ask) -> None:
    ask("put", "k", "one")
    ask("put", "other", "x")
    ask("put", "k", "two")
    ask("del", "k")
    ask("put", "k", "three")
    assert ask("history", "k").rows == [
        ["6", "1", "-", "three"],
        ["5", "0", "-", "(deleted)"],
        ["4", "2", "-", "two"],
        ["2", "1", "-", "one"],
    ]
    assert ask("history", "k", "--limit", "1").rows == [["6", "1", "-", "three"]]
    assert ask("history", "k", "--reverse").rows[0][3] == "one"
    assert ask("history", "nothing").code == 3


def test_history_starts_where_compaction_left_it(ask: Ask) -> None:
    for value in ("one", "two", "three"):
        ask("put", "k", value)
    ask("put", "gone", "x")
    ask("del", "gone")
    assert ask("compact", "3").code == 0
    assert [row[3] for row in ask("history", "k").rows] == ["three", "two"]
    assert [row[3] for row in ask("history", "gone").rows] == ["(deleted)", "x"]
    assert ask("compact", "--keep", "0").out == b"6\n"
    found = ask("history", "k", "-o", "json").json
    assert (found["oldest_revision"], [kv["value"] for kv in found["versions"]]) == (6, ["three"])


def test_compacted_revision_is_one_line(ask: Ask) -> None:
    for value in ("one", "two", "three"):
        ask("put", "k", value)
    ask("compact", "4")
    said = ask("get", "k", "--at", "2")
    assert (said.code, said.err.count("\n")) == (1, 1)
    assert ask("compact", "2").code == 1
    assert ask("compact").code == 2


def test_keeping_more_than_there_is_is_no_error(ask: Ask) -> None:
    for value in ("one", "two", "three"):
        ask("put", "k", value)
    assert ask("compact", "--keep", "100").out == b"1\n"
    assert ask("get", "k", "--at", "2").out == b"one\n"
    assert ask("compact", "--keep", "1").out == b"3\n"
    assert ask("compact", "--keep", "1", "-o", "json").json == {"oldest_revision": 3}


def test_reading_verbs_create_no_data_file(ask: Ask, tmp_path: Path) -> None:
    for verb in (["get", "k"], ["ls"], ["del", "k"], ["history", "k"], ["lease", "list"]):
        said = ask(*verb)
        assert said.code == 1
        assert "is not a file" in said.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["get"], "KEY"),
        (["get", ""], "--prefix"),
        (["get", "k", "--prefix", "--from-key"], "contradict"),
        (["get", "k", "--range", "a"], "after KEY"),
        (["get", "k", "--limit", "0"], "--limit"),
        (["get", "k", "--colour"], "--colour"),
        (["get", "k", "-e", "postgres://x"], "names no"),
        (["get", "k", "--timeout", "soon"], "1h30m"),
        (["get", "k", "--user", "ada:secret"], "--user"),
        (["put", "k"], "VALUE"),
        (["put", "", "v"], "empty"),
        (["put", "k", "v", "--lease", "xyz"], "hexadecimal"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_request_is_one_line_and_exit_code_2(ask: Ask, arguments: list[str], hint: str) -> None:
    said = ask(*arguments)
    assert (said.code, said.out, said.err.count("\n")) == (2, b"", 1)
    assert said.err.startswith("quoracy: ")
    assert hint in said.err
