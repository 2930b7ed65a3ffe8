"""What the documents say is so: their Python runs, their transcripts are real, their links lead on."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])

FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]+\]\(([^)#:]+)(?:#[^)]*)?\)")
HELP = re.compile(r"\$ quoracy ([a-z ]*)--help\n(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block, and the text of the ```text block right below it: what it prints."""

    name: str
    language: str
    body: str
    below: str | None


def blocks(document: Path) -> list[Block]:
    text = document.read_text(encoding="utf-8")
    fences = list(FENCE.finditer(text))
    found = []
    for fence, following in zip_longest(fences, fences[1:]):
        adjacent = following is not None and not text[fence.end() : following.start()].strip()
        below = following[2] if following is not None and adjacent and following[1] == "text" else None
        line = text[: fence.start()].count("\n") + 1
        found.append(Block(f"{document.relative_to(ROOT)}:{line}", fence[1], fence[2], below))
    return found


ALL_BLOCKS = [block for document in DOCUMENTS for block in blocks(document)]
PYTHON = [block for block in ALL_BLOCKS if block.language == "python"]
TRANSCRIPTS = [block for block in ALL_BLOCKS if block.language == "console" and HELP.match(block.body)]


@pytest.mark.parametrize("block", PYTHON, ids=lambda block: block.name)
def test_python_in_documents_runs_and_prints_what_is_shown(block: Block, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", block.body],
        check=False,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    if block.below is not None:
        assert done.stdout == block.below


@pytest.mark.parametrize("block", TRANSCRIPTS, ids=lambda block: block.name)
def test_help_in_documents_is_what_the_command_prints(block: Block) -> None:
    transcript = HELP.match(block.body)
    assert transcript is not None
    done = subprocess.run(
        [sys.executable, "-m", "quoracy", *transcript[1].split(), "--help"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.rstrip() == transcript[2].rstrip()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_between_documents_lead_somewhere(document: Path) -> None:
    targets = LINK.findall(document.read_text(encoding="utf-8"))
    assert [target for target in targets if not (document.parent / target).exists()] == []


def test_tests_that_documents_name_exist() -> None:
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    named = {
        (str(document.relative_to(ROOT)), name)
        for document in DOCUMENTS
        for name in re.findall(r"`(test_\w+)`", document.read_text(encoding="utf-8"))
    }
    assert {(where, name) for where, name in named if f"def {name}(" not in sources} == set()
