"""Writes the blocking classes: run it after any change to the recipes or to Redlock.

`quoracy.sync` and `quoracy.redlock.sync` are not written by hand.  Beginning with what connects, this
reads every public class that can be got at, and writes one with the same names, types and docstrings
whose methods go through a `Portal`:

    async def acquire(self, *, timeout: float | None = None) -> Held: ...

    def acquire(self, *, timeout: float | None = None) -> Held:
        return Held(self._portal, self._portal.run(lambda: self._it.acquire(timeout=timeout)))

When you add a recipe: add its method to `Connection`, run the command, look at the difference, commit
it.  A test compares what is in the tree with what would be written.  Docstrings are copied as they are,
so write them for both readers.  What cannot be translated (a type that has no counterpart, an attribute
whose type is not known) is listed on the way, and left out: write the annotation the list asks for.
Needs ruff, for the layout.

    python -m quoracy.threads.generator            write
    python -m quoracy.threads.generator --check    only say what would change; the exit status is 1 then
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from quoracy.client.connection import Connection
from quoracy.redlock.lock import Redlock
from quoracy.threads.generator.classes import Api, Written, write_class, write_connect
from quoracy.threads.generator.translation import (
    PROXIES,
    CannotTranslate,
    Names,
    is_block,
)

__all__ = ["Generated", "generate", "main"]

PACKAGE = Path(__file__).parents[2]
PROJECT = PACKAGE.parents[1]
COMMAND = "python -m quoracy.threads.generator"

# What the client has for recipes, and the store for faces.
HIDDEN = frozenset((
    "loss_type", "release_txn", "key_not_found", "leave", "MirrorBlock", "QueueConsumer",
    "Store.cluster", "Store.head_revision", "Store.submit", "Store.read", "Store.catch_up",
    "Watch.poll", "Watch.on_ready",
))  # fmt: skip


def _home_in_sync(cls: type) -> str:
    if cls is Connection:
        return "quoracy.sync.connection"
    return f"quoracy.sync.{'store' if cls.__module__.startswith('quoracy.store') else 'recipes'}"


CLIENT = Api(
    Connection,
    "Generated: the classes of `quoracy.connect`, for threads.",
    _home_in_sync,
    connect="quoracy.connecting",
    inherited=frozenset({"store", "identity", "namespace", "state", "on_state", "wait_state"}),
    hidden=HIDDEN,
)
REDLOCK = Api(
    Redlock,
    "Generated: Redlock for threads.",
    lambda _: "quoracy.redlock.sync",
    close_s="CLOSE_S + 4 * server_timeout",
    hidden=frozenset({"leave", "loss", "note_expiry"}),
    done_by_close=frozenset({"release"}),
    reads_clock=frozenset({"is_held", "remaining_s"}),
)


@dataclass
class Generated:
    """Files by their path in the package, and what could not be translated."""

    files: dict[Path, str] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)


@dataclass
class _Module:
    """One generated module."""

    names: Names = field(default_factory=Names)
    written: list[Written] = field(default_factory=list)


def generate() -> Generated:
    """All of it, formatted."""
    made = Generated()
    for api in (CLIENT, REDLOCK):
        modules = _modules_of(api)
        for home, module in modules.items():
            made.files[Path(*home.split(".")[1:]).with_suffix(".py")] = _text(home, module, api)
            made.left_out += [each for written in module.written for each in written.left_out]
        if api is CLIENT:
            made.files[Path("sync/__init__.py")] = _package(modules)
    made.files = _laid_out(made.files)
    return made


def _modules_of(api: Api) -> dict[str, _Module]:
    """The modules, by name, with all classes that the root leads to."""
    modules: dict[str, _Module] = {}
    waiting, seen = [api.root], {api.root}
    while waiting:
        cls = waiting.pop(0)
        module = modules.setdefault(api.home_of(cls), _Module())
        module.written.append(write_class(cls, api, module.names))
        needed = {each for each in module.names.proxied if not is_block(each)} - seen
        waiting += sorted(needed, key=lambda each: each.__qualname__)
        seen |= needed
    if api.connect:
        module = modules[api.home_of(api.root)]
        module.written.append(write_connect(api, module.names))
    return modules


def _text(home: str, module: _Module, api: Api) -> str:
    names = module.names
    if names.variables:
        names.use("typing", "TypeVar")
    proxied = [cls for cls in names.proxied if not is_block(cls) and api.home_of(cls) != home]
    imports = sorted(names.imports | {(api.home_of(cls), cls.__name__) for cls in proxied})
    lines = [
        f'"""{api.doc}\n\nDo not change it by hand: run `{COMMAND}`.\n"""\n',
        "from __future__ import annotations\n",
        *(f"from {source} import {name}" if name else f"import {source}" for source, name in imports),
        *(f'{name} = TypeVar("{name}")' for name in sorted(names.variables)),
        # Each class after its bases, which have fewer above them.
        *(f"{each.text}\n" for each in sorted(module.written, key=lambda each: each.depth)),
    ]
    return "\n".join(lines)


def _package(modules: dict[str, _Module]) -> str:
    exported = [(name, each.name) for name, module in modules.items() for each in module.written]
    exported += [(PROXIES, name) for name in ("Block", "Event", "Stream")]
    doc = f'''"""Quoracy for threads and scripts: the names of `quoracy` without `async` and `await`.

    with quoracy.sync.connect("quoracy://localhost") as q:
        with q.lock("reports/nightly") as held:
            write_report(fence=held.token)

Generated: do not change it by hand, run `{COMMAND}`.
"""
'''
    imports = [f"from {module} import {name}" for module, name in exported]
    return "\n".join([doc, *imports, f"__all__ = {sorted(name for _, name in exported)!r}", ""])


def _laid_out(files: dict[Path, str]) -> dict[Path, str]:
    """As `make fmt` would have it."""
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory) / "src" / "quoracy"
        for path, text in files.items():
            (place / path).parent.mkdir(parents=True, exist_ok=True)
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
    for path, text in sorted(made.files.items()):
        target = PACKAGE / path
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
