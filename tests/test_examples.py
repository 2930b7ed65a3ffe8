"""What docstrings show is so: their `>>>` examples give what is shown, their snippets run.

A snippet is an indented block that opens a connection: it is run on `memory:`, as it stands.  What it
uses besides (the work that is done under a lock, say) is in `STAND_INS`.
"""

from __future__ import annotations

import ast
import asyncio
import doctest
import importlib
import textwrap
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "quoracy"
_OPENING = "async with quoracy.connect("


def modules(containing: str) -> list[str]:
    return [
        ".".join(("quoracy", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")
        for path in sorted(SOURCE.rglob("*.py"))
        if containing in path.read_text(encoding="utf-8")
    ]


# Redlock's need servers: `tests/redlock` runs them.
@pytest.mark.parametrize("name", [name for name in modules(">>> ") if ".redlock." not in name])
def test_examples_give_what_is_shown(name: str) -> None:
    module = importlib.import_module(name)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for line, text in docstrings(name):
        example = doctest.DocTestParser().get_doctest(text, vars(module).copy(), name, name, line)
        runner.run(example)
    assert runner.tries > 0
    assert runner.failures == 0


def docstrings(module: str) -> list[tuple[int, str]]:
    """From the source: a module that was compiled does not show all of them."""
    path = SOURCE.parent.joinpath(*module.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return [
        (node.body[0].lineno, text)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and (text := ast.get_docstring(node))
    ]


def snippets() -> list[tuple[str, str]]:
    """Every snippet in a docstring, with the module it is in and the line of that docstring."""
    found = []
    for name in modules(_OPENING):
        for _, text in docstrings(name):
            found += [(f"{name}:{at}", body) for at, body in _snippets_of(text)]
    return found


def _snippets_of(docstring: str) -> list[tuple[int, str]]:
    blocks: list[tuple[int, list[str]]] = []
    for at, line in enumerate(docstring.splitlines()):
        if line.startswith("    ") or (blocks and blocks[-1][1] and not line.strip()):
            if not blocks or not blocks[-1][1] or blocks[-1][0] + len(blocks[-1][1]) != at:
                blocks.append((at, []))
            blocks[-1][1].append(line)
    texts = [(at, textwrap.dedent("\n".join(lines)).strip()) for at, lines in blocks]
    return [(at, text) for at, text in texts if _OPENING in text]


STAND_INS = """
import msgspec
import quoracy

small, large = "small", "large"
async def write_report(fence): ...
async def write_reports(fence): ...
async def run_scheduler(fence): ...
async def look_up(): ...
async def replace_everything(fence): ...
async def read_it_back(): ...
async def render(scene, fence=0): ...
async def send(item, fence): ...
"""


@pytest.mark.parametrize(("where", "body"), [pytest.param(*each, id=each[0]) for each in snippets()])
async def test_snippets_run(where: str, body: str) -> None:
    program = f"{STAND_INS}\nasync def snippet():\n{textwrap.indent(body, '    ')}\n"
    names: dict[str, object] = {}
    exec(compile(program, where, "exec"), names)
    snippet = names["snippet"]
    assert callable(snippet)
    async with asyncio.timeout(20):
        await snippet()
