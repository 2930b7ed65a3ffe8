"""`quoracy watch` over history: what it shows, what it runs, when it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.cli.asking import Ask


@pytest.fixture
def history(ask: Ask) -> None:
    ask("put", "a/1", "one")
    ask("put", "b", "two\n")
    ask("put", "a/1", "three")
    ask("del", "a/1")


def test_lines_have_kind_key_value_and_revision(ask: Ask, history: None) -> None:
    said = ask("watch", "a/", "--prefix", "--after", "1", "--count", "3")
    assert (said.code, said.rows) == (
        0,
        [["put", "a/1", "one", "2"], ["put", "a/1", "three", "4"], ["delete", "a/1", "", "5"]],
    )


def test_prev_adds_what_was_there(ask: Ask, history: None) -> None:
    said = ask("watch", "a/1", "--after", "2", "--count", "2", "--prev")
    assert said.rows == [["put", "a/1", "three", "4", "one"], ["delete", "a/1", "", "5", "three"]]


def test_json_is_one_document_on_each_line(ask: Ask, history: None) -> None:
    said = ask("watch", "", "--prefix", "--after", "1", "--count", "4", "-o", "json", "--prev")
    events = [json.loads(line) for line in said.lines]
    assert [(event["kind"], event["revision"]) for event in events] == [
        ("put", 2),
        ("put", 3),
        ("put", 4),
        ("delete", 5),
    ]
    assert events[3]["prev_kv"]["value"] == "three"
    assert "value" not in events[3]["kv"]


def test_several_keys_are_watched_at_once(ask: Ask, history: None) -> None:
    said = ask("watch", "a/1", "b", "--after", "1", "--count", "4")
    assert sorted(row[3] for row in said.rows) == ["2", "3", "4", "5"]


def test_exec_runs_once_for_each_event_with_the_value_on_stdin(
    ask: Ask, history: None, tmp_path: Path
) -> None:
    script = f'{{ echo "$QUORACY_EVENT $QUORACY_KEY $QUORACY_REVISION"; cat; }} >> {tmp_path}/log'
    said = ask("watch", "a/1", "--after", "2", "--count", "2", "--exec", "--", "sh", "-c", script)
    assert said.code == 0
    assert (tmp_path / "log").read_text() == "put a/1 4\nthreedelete a/1 5\n"


def test_failing_command_is_named_and_the_watch_goes_on(ask: Ask, history: None) -> None:
    said = ask("watch", "a/1", "--after", "1", "--count", "2", "--exec", "--", "sh", "-c", "exit 9")
    assert said.code == 0
    assert said.err.count("sh ended with 9 for a/1") == 2


def test_compacted_start_is_one_line(ask: Ask, history: None) -> None:
    ask("compact", "4")
    said = ask("watch", "a/1", "--after", "1")
    assert (said.code, said.err.count("\n")) == (1, 1)
    assert "compacted" in said.err


@pytest.mark.parametrize(
    "arguments",
    [["watch"], ["watch", "k", "--exec"], ["watch", "k", "--", "true"], ["watch", ""]],
    ids=" ".join,
)
def test_contradictions_are_refused(ask: Ask, arguments: list[str]) -> None:
    ask("put", "k", "v")
    said = ask(*arguments)
    assert (said.code, said.err.count("\n")) == (2, 1)
