"""Writes the synchronous classes: `python -m quoracy.sync.generate`, after any change to the recipes.

The classes in `quoracy.sync.face` and the list in `quoracy.sync` are not written by hand.  Beginning
with what `quoracy.connect` gives, this reads every public class that can be got at, and writes one with
the same names, types and docstrings whose methods go through a `Portal`:

    async def acquire(self, *, timeout: float | None = None) -> Held: ...

    def acquire(self, *, timeout: float | None = None) -> Held:
        return Held(self._portal, self._portal.run(lambda: self._it.acquire(timeout=timeout)))

When you add a recipe: add its method to `Connection`, run the command, look at the difference, commit
it.  A test compares what is in the tree with what would be written.  What cannot be translated (a type
that has no counterpart, an attribute whose type cannot be told) is listed on the way, and left out:
write the annotation the list asks for.  Needs ruff, for the layout.

    python -m quoracy.sync.generate            write
    python -m quoracy.sync.generate --check    only say what would change; the exit status is 1 then
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from quoracy.sync.crossing import CannotTranslate
from quoracy.sync.reading import is_live, is_only_a_block, read_module
from quoracy.sync.writing import FACE, Written, face_module, write_class, write_connect, write_module

__all__ = ["Generated", "generate", "main"]

HERE = Path(__file__).parent
PROJECT = HERE.parents[2]
ROOT = "quoracy.client.connection"


@dataclass
class Generated:
    """Files by their path in the package, and what could not be translated."""

    files: dict[Path, str] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)


def generate(*besides: type) -> Generated:
    """All of it, formatted.  besides: classes that nothing leads to yet."""
    made = Generated()
    modules: dict[str, list[Written]] = {}
    root = read_module(ROOT).value("Connection")
    assert isinstance(root, type)
    waiting, seen = [root, *besides], {root, *besides}
    while waiting:
        cls = waiting.pop(0)
        written = write_class(cls)
        made.left_out += written.left_out
        modules.setdefault(face_module(cls), []).append(written)
        for needed in sorted(written.names.faces, key=lambda each: each.__qualname__):
            if needed not in seen and is_live(needed) and not is_only_a_block(needed):
                seen.add(needed)
                waiting.append(needed)
    modules[face_module(root)].append(write_connect())
    exported: list[tuple[str, str]] = []
    for name, classes in sorted(modules.items()):
        made.files[Path("face") / f"{name}.py"] = write_module(name, classes)
        exported += ((f"{FACE}.{name}", each.name) for each in classes)
    made.files[Path("face/__init__.py")] = (
        '"""The synchronous classes.  Generated: see `quoracy.sync.generate`."""\n'
    )
    made.files[Path("__init__.py")] = _package(exported)
    made.files = _laid_out(made.files)
    return made


def _package(exported: list[tuple[str, str]]) -> str:
    exported = [*exported, *((("quoracy.sync.blocks"), name) for name in ("Block", "Event", "Stream"))]
    lines = [
        '"""Quoracy for threads and scripts: the same names as `quoracy`, without `async` and `await`.',
        "",
        '    with quoracy.sync.connect("quoracy://localhost") as q:',
        '        with q.lock("reports/nightly") as held:',
        "            write_report(fence=held.token)",
        "",
        "Generated: see `quoracy.sync.generate`.",
        '"""',
        "",
        *(f"from {module} import {name}" for module, name in exported),
        "",
        f"__all__ = {sorted(name for _, name in exported)!r}",
        "",
    ]
    return "\n".join(lines)


def _laid_out(files: dict[Path, str]) -> dict[Path, str]:
    """As `make fmt` would have it; and whole, because this needs the package to be importable."""
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory) / "src" / "quoracy" / "sync"
        (place / "face").mkdir(parents=True)
        for path, text in files.items():
            (place / path).write_text(text, encoding="utf-8")
        settings = ["--quiet", "--no-cache", "--config", str(PROJECT / "pyproject.toml"), str(place)]
        for arguments in (["check", "--fix", "--select", "I,F,RUF022"], ["format"]):
            command = [sys.executable, "-m", "ruff", *arguments, *settings]
            done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise CannotTranslate(f"{done.stderr}\n{done.stdout}")
        return {path: (place / path).read_text(encoding="utf-8") for path in files}


def main(arguments: list[str]) -> int:
    """What the command does; the exit status."""
    made = generate()
    for each in made.left_out:
        sys.stderr.write(f"left out: {each}\n")
    differing = 0
    old = {path.relative_to(HERE) for path in (HERE / "face").glob("*.py")}
    for path in sorted(old - made.files.keys()):
        differing += 1
        sys.stdout.write(f"{path} is not needed any more\n")
        if "--check" not in arguments:
            (HERE / path).unlink()
    for path, text in sorted(made.files.items()):
        target = HERE / path
        if target.exists() and target.read_text(encoding="utf-8") == text:
            continue
        differing += 1
        sys.stdout.write(f"{path} changes\n")
        if "--check" not in arguments:
            target.parent.mkdir(exist_ok=True)
            target.write_text(text, encoding="utf-8")
    return 1 if differing and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
