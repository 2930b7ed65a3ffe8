"""Many processes at one gate: an admitted token is never followed by a lower one."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

import msgspec
import pytest

from tests.faults.scale import rounds
from tests.fencing.asker import RESOURCES, Asked
from tests.fencing.conftest import Where
from tests.fencing.gates import SHARED, journal

PROCESSES = 4
COUNT = rounds(150, 1_000)
ASKER = [sys.executable, "-W", "error", "-m", "tests.fencing.asker"]

Process = subprocess.Popen[str]


@pytest.fixture(scope="module")
def askers() -> Iterator[list[Process]]:
    """Processes that ask whatever gate they are told to."""
    processes = [
        subprocess.Popen(ASKER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(PROCESSES)
    ]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


@pytest.mark.faults
@pytest.mark.parametrize("kind", SHARED)
def test_processes_at_one_gate_see_one_highest(kind: str, where: Where, askers: list[Process]) -> None:
    place = where(kind)
    asked = ask_all_at_once(askers, kind, place)
    assert len(asked) >= PROCESSES * COUNT
    for resource in RESOURCES:
        of_resource = [each for each in asked if each.resource == resource]
        assert broken_promises(of_resource) == []
        written = journal(kind, place, resource)
        if written is not None:
            assert written == sorted(written)
            assert sorted(written) == sorted(each.token for each in of_resource if each.highest is None)


def ask_all_at_once(askers: list[Process], kind: str, where: str) -> list[Asked]:
    for seed, process in enumerate(askers):
        tell(process, msgspec.json.encode((kind, where, seed, COUNT)).decode())
    for process in askers:
        assert hear(process) == "ready\n"
    now = time.monotonic_ns()
    for process in askers:
        tell(process, str(now))
    return [
        asked for process in askers for asked in msgspec.json.decode(hear(process), type=list[Asked])
    ]


def tell(process: Process, line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()


def hear(process: Process) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def broken_promises(asked: list[Asked]) -> list[str]:
    """What could not happen at a gate that keeps one highest of this resource."""
    wrong: list[str] = []
    for each in asked:
        if each.highest is None:
            known = [other for other in asked if other.ended < each.began]
            larger = max((max(other.token, other.highest or 0) for other in known), default=0)
            if larger > each.token:
                wrong.append(f"{each.token} was admitted after {larger} had been seen")
        elif each.highest <= each.token:
            wrong.append(f"{each.token} was refused at {each.highest}")
        elif not any(
            o.token == each.highest and o.began < each.ended for o in asked if o.highest is None
        ):
            wrong.append(f"{each.token} was refused for {each.highest}, which nobody was admitted with")
    return wrong


def test_the_judge_notices_a_gate_that_forgets() -> None:
    good = [Asked("a", 5, 0, 1, None), Asked("a", 4, 2, 3, 5), Asked("a", 5, 4, 5, None)]
    assert broken_promises(good) == []
    assert broken_promises([*good, Asked("a", 4, 6, 7, None)]) == [
        "4 was admitted after 5 had been seen"
    ]
    assert broken_promises([Asked("a", 5, 0, 9, None), Asked("a", 4, 1, 8, None)]) == []  # at once
    assert broken_promises([Asked("a", 5, 0, 1, 5)]) == ["5 was refused at 5"]
    assert len(broken_promises([Asked("a", 5, 0, 1, 6)])) == 1
