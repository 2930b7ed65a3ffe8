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
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
SOURCE = ROOT / "src" / "quoracy"
ROW = re.compile(r"^\| (`[^|]+`) \|", re.MULTILINE)
STEP = re.compile(r"^\d+\. `([a-z0-9_/]+\.py)`: (.*)$", re.MULTILINE)
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


def modules_in_the_table() -> set[Path]:
    """What the first column names; a name without a folder is beside the one before it in its row."""
    found = set()
    for row in ROW.findall(ARCHITECTURE.partition("\n## In memory\n")[0]):
        folder = SOURCE
        for name in re.findall(r"`([^`]+)`", row):
            path = (SOURCE if "/" in name.rstrip("/") else folder) / name
            found.add(path)
            folder = path.parent
    return found


def test_modules_in_the_table_of_the_architecture_exist() -> None:
    table = modules_in_the_table()
    assert len(table) > 100
    assert sorted(str(path) for path in table if not path.exists()) == []


def test_the_table_of_the_architecture_covers_every_package() -> None:
    table = modules_in_the_table()
    packages = [path.parent for path in SOURCE.rglob("__init__.py") if path.parent != SOURCE]
    uncovered = [
        str(package)
        for package in packages
        if not table & {package, *package.parents}
        and not any(package in path.parents for path in table)
    ]
    assert uncovered == []


def test_the_walks_of_the_architecture_name_functions_of_their_files() -> None:
    steps = STEP.findall(ARCHITECTURE)
    assert len(steps) > 50
    missing = []
    for file, text in steps:
        source = (SOURCE / file).read_text(encoding="utf-8")
        name = re.search(r"`(\w+)`", text)
        if name and not re.search(rf"(def|class) {name[1]}\b", source):
            missing.append((file, name[1]))
    assert missing == []
