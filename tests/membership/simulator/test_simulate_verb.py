"""`quoracy simulate` from outside."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from quoracy.cli.membership.simulate import command


def simulate(*arguments: str) -> Result:
    return CliRunner().invoke(command, list(arguments), standalone_mode=True)


def told(*arguments: str) -> str:
    result = simulate(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_run_is_told_with_its_sums() -> None:
    said = told("--members", "10", "--seconds", "30", "--seed", "7", "--crash", "2@5")
    rows = [line.split("\t") for line in said.splitlines()]
    assert next(row[1] for row in rows if row[0] == "5.000") == "fault"
    assert sum("crash of" in line for line in said.splitlines()) == 2
    sums = {row[0]: row[1] for row in rows if len(row) == 2}
    assert sums["members"] == "10 for 30 s, seed 7"
    assert sums["crashes"] == "2"
    assert re.fullmatch(r"after \d.* to .*, median .*", sums["all know"])
    assert sums["false positives"] == "none"
    assert sums["packets"].endswith("per member and second")


def test_the_same_seed_says_the_same_and_another_does_not() -> None:
    options = ("--members", "10", "--seconds", "20", "--crash", "1@2", "--loss", "10%")
    assert told(*options, "--seed", "7") == told(*options, "--seed", "7")
    assert told(*options, "--seed", "7") != told(*options, "--seed", "8")


def test_without_a_seed_the_one_that_was_drawn_is_printed() -> None:
    options = ("--members", "5", "--seconds", "8", "--crash", "1@2")
    said = told(*options)
    seed = re.search(r"seed (\d+)", said)
    assert seed is not None
    assert told(*options, "--seed", seed[1]) == said


def test_json_has_the_sums_and_the_timeline() -> None:
    said = json.loads(
        told("--members", "6", "--seconds", "30", "--seed", "1", "--crash", "1@2", "-o", "json")
    )
    assert (said["members"], said["seconds"], said["seed"]) == (6, 30.0, 1)
    assert said["detections"][0]["all_know_s"] > 0
    assert said["timeline"][0]["kind"] == "fault"
    assert said["timeline"][0]["time"] == 2.0


def test_faults_happen_as_asked_for() -> None:
    said = json.loads(
        told(
            "--members", "20", "--seconds", "40", "--seed", "1", "-o", "json", "--crash", "1@2-20",
            "--leave", "2@3", "--slow", "10%@5-9", "--partition", "25%@10-12",
        )
    )  # fmt: skip
    faults = [line["text"] for line in said["timeline"] if line["kind"] == "fault"]
    assert [text.split()[0] for text in faults[:3]] == ["crash", "leave", "leave"]
    assert sum("is held up 10 s, runs 0.5 s until 9 s" in text for text in faults) == 2
    assert "partition 5 | the rest until 12 s" in faults
    assert sum(text.startswith("restart") for text in faults) == 1


def test_pictures_are_written_where_asked(tmp_path: Path) -> None:
    still, moving = tmp_path / "run.svg", tmp_path / "anim.svg"
    told(
        "--members",
        "8",
        "--seconds",
        "20",
        "--crash",
        "1@2",
        "--picture",
        str(still),
        "--animate",
        str(moving),
    )
    for path in (still, moving):
        assert ElementTree.parse(path).getroot().tag.endswith("svg")
    assert "<animate " in moving.read_text()
    assert "<animate " not in still.read_text()


def test_without_lifeguard_the_run_is_another() -> None:
    options = ("--members", "16", "--seconds", "40", "--seed", "3", "--slow", "20%@2-30")
    assert "false positives\tnone" in told(*options)
    assert re.search(r"false positives\t[1-9]", told(*options, "--no-lifeguard"))


def test_members_can_begin_by_joining() -> None:
    said = told("--members", "8", "--seconds", "20", "--seed", "3", "--joining")
    assert "wrongly dead now\t0" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--crash", "3"), "'3' is not COUNT@SECONDS. Write 3@10"),
        (("--crash", "3@70"), "70 s is after the end of the run. Give --seconds more than 70."),
        (("--members", "5", "--crash", "5@1"), "5 members are too many: of 5 there are 4 left"),
        (("--partition", "0.5@10"), "Write 0.5@10-30"),
        (("--partition", "0.5@30-10"), "ends before it begins"),
        (("--loss", "7"), "'7' is not a share. Write 0.05 or 5%."),
        (("--slow", "some"), "Write 5%"),
        (("--picture", "run.png"), "pictures are SVG: name it 'run.svg'"),
        (("--animate", "/no/such/place/run.svg"), "there is no directory"),
        (("--seconds", "0"), "more than 0 s"),
        (("--members", "1"), "is not in the range"),
    ],
)
def test_an_option_that_is_wrong_is_answered_with_what_is_right(
    arguments: tuple[str, ...], message: str
) -> None:
    result = simulate(*arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
    assert result.stdout == ""
