"""The examples in docstrings and in the guide run as they stand, on real servers."""

from __future__ import annotations

import doctest
import inspect
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from quoracy.redlock import Redlock, quorum, sync
from tests.support.redis_server import RedisServer

GUIDE = Path(__file__).parent.parent.parent / "docs" / "guides" / "redlock.md"
# `py`, not `python`: what is marked so runs with no server at hand.
EXAMPLE = re.compile(r"^```py\n(.*?)^```\n\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXAMPLES = [(found[1], found[2]) for found in EXAMPLE.finditer(GUIDE.read_text(encoding="utf-8"))]


def snippet_of(kind: type) -> str:
    """The indented block of a docstring."""
    paragraphs = (inspect.getdoc(kind) or "").split("\n\n")
    paragraph = next(each for each in paragraphs if each.startswith("    "))
    return textwrap.indent(textwrap.dedent(paragraph), "    ")


async def test_docstring_example_runs(urls: list[str]) -> None:
    reports: list[str] = []

    async def write_report() -> None:
        reports.append("written")

    names: dict[str, object] = {"Redlock": Redlock, "servers": urls, "write_report": write_report}
    exec(f"async def example():\n{snippet_of(Redlock)}", names)
    example = names["example"]
    assert callable(example)
    await example()
    assert reports == ["written"]


def test_docstring_example_for_threads_runs(urls: list[str]) -> None:
    reports: list[str] = []
    names = {
        "Redlock": sync.Redlock,
        "servers": urls,
        "write_report": lambda: reports.append("written"),
    }
    # As the docstring says: the same without these words.
    snippet = snippet_of(sync.Redlock).replace("async ", "").replace("await ", "")
    exec(f"if True:\n{snippet}", names)
    assert reports == ["written"]


def test_arithmetic_in_docstrings_is_right() -> None:
    result = doctest.testmod(quorum)
    assert (result.failed, result.attempted > 0) == (0, True)


@pytest.mark.parametrize(("program", "output"), EXAMPLES)
def test_guide_examples_print_what_is_shown(
    program: str, output: str, redises: list[RedisServer]
) -> None:
    for letter, server in zip("abcde", redises, strict=True):
        program = program.replace(f"redis://redis-{letter}.internal:6379", server.url)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr) == (output, "")


def test_guide_has_examples() -> None:
    assert len(EXAMPLES) >= 3
