"""Plain English in docstrings, comments and documents: turns of phrase that are wrong or odd.

The list is short.  It has phrases that readers stumbled over, and what to write instead; that a text
passes does not mean that it reads well.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "quoracy"

# A turn, as a regular expression (spaces also match line breaks), and what to write instead.
NOT_WANTED = {
    r"\b(for|of|to|by|from|than|with) who\b": "name them: 'callers that', 'clients that'",
    r"\bwho waits\b": "'callers that wait', 'a waiter'",
    r"\bwhoever (asks|comes|gets|has|holds|is|needs|reads|waits|wants|writes)\b": (
        "name them: 'a client that'"
    ),
    r"[.;:*] who (asks|came|cannot|comes|has|holds|keeps|needs|reads|wants|writes)\b[^?.;]*[.;]": (
        "'a caller that asks', not 'who asks'"
    ),
    r"\b(am|are|be|been|being|is|was|were) told\b(?! to\b)": "'is notified', 'learns', 'receives'",
    r"\b(tells?|told|telling) of\b": "'reports'",
    r"\bso (many|much)\b": "a number, 'this many', 'that much'",
    r"\bany more, many\b": "write two sentences",
    r"\b(can|could|may|to) be had\b": "'is available'",
    r"\bis for [\w.`]+ to (decide|say|tell)\b": "'X decides'",
    r"\bbusiness of\b|'s business\b": "'does not concern', 'X does not'",
    r"\bmend(s|ed|ing)?\b": "'fix', 'correct', 'repair'",
    r"\bno more[.;:,)]": "'no longer'",
    r"\b(is|are|was) known of\b": "'know about'",
    r"\blet(s|ting)? go of\b": "'release', 'drop', 'free'",
    r"\bgone by then\b": "say what was deleted, and when",
}
PATTERNS = {turn: re.compile(turn.replace(" ", r"\s+"), re.IGNORECASE) for turn in NOT_WANTED}

# Parts of the source that are still to be rewritten.
NOT_YET: tuple[str, ...] = ()

DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
MODULES = [
    path
    for path in sorted([*SOURCE.rglob("*.py"), *SOURCE.rglob("*.c")])
    if not any(path.is_relative_to(SOURCE / each) for each in NOT_YET)
]


@pytest.mark.parametrize("path", [*DOCUMENTS, *MODULES], ids=lambda path: str(path.relative_to(ROOT)))
def test_no_turn_that_is_not_wanted(path: Path) -> None:
    assert [
        f"{path.relative_to(ROOT)}:{line}: {found!r}; instead: {NOT_WANTED[turn]}"
        for line, text in texts_of(path)
        for line, found, turn in faults_in(line, text)
    ] == []


def faults_in(line: int, text: str) -> Iterator[tuple[int, str, str]]:
    for turn, pattern in PATTERNS.items():
        for match in pattern.finditer(text):
            yield line + text.count("\n", 0, match.start()), " ".join(match[0].split()), turn


def texts_of(path: Path) -> Iterator[tuple[int, str]]:
    """What is written for people in a file, with the line on which it begins."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        yield 1, re.sub(r"^```.*?^```$", blank, text, flags=re.MULTILINE | re.DOTALL)
    elif path.suffix == ".py":
        yield from docstrings(text)
        yield from comments(text)
    else:
        for comment in re.finditer(r"/\*.*?\*/", text, re.DOTALL):
            yield (
                text.count("\n", 0, comment.start()) + 1,
                re.sub(r"^ \*", "  ", comment[0], flags=re.M),
            )


def blank(match: re.Match[str]) -> str:
    return "\n" * match[0].count("\n")


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield node.lineno, text


def comments(source: str) -> Iterator[tuple[int, str]]:
    """Comments; those on adjacent lines as one text."""
    begun, lines = 0, list[str]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            if lines and token.start[0] != begun + len(lines):
                yield begun, "\n".join(lines)
                lines = []
            begun = begun if lines else token.start[0]
            lines.append(token.string.lstrip("#"))
    if lines:
        yield begun, "\n".join(lines)


@pytest.mark.parametrize(
    "text", ["Room for who comes.", "a list\nof\nwho is here", "It is told.", "so\nmany"]
)
def test_turns_are_found_across_lines(text: str) -> None:
    assert list(faults_in(1, text))


def test_what_is_still_to_be_rewritten_exists() -> None:
    assert [each for each in NOT_YET if not (SOURCE / each).exists()] == []
