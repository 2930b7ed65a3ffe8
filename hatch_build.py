"""Compiles the hot modules to C extensions with mypyc: the same source, less processor time.

`python hatch_build.py` compiles in place what changed since the last time (`make compile`).  An
extension lies next to its source and is imported instead of it.  Nothing depends on that: without a C
compiler Quoracy runs from its source, and `QUORACY_PURE=1` makes it do so anyway.

It is also a hook of hatchling: a wheel built with HATCH_BUILD_HOOKS_ENABLE=1 has the extensions, and is
for one version of Python and one kind of machine.  Without the hook a wheel is for all of them.

[tool.quoracy.compiled] in pyproject.toml names the modules; its `c_modules` are written in C.  Modules
that are compiled together know each other's classes, so a change of one may change others; mypyc finds
out which. Modules with coroutines are not compiled: cancelled ones, compiled by mypyc 2.4, raised in
the wrong task.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_ROOT = Path(__file__).parent
_SOURCE = _ROOT / "src"
_BUILD = _ROOT / "build" / "compiled"
# Holds a digest of everything that was compiled.
_STAMP = _BUILD / "digest"

# At 2 the compiler takes a third longer, and the result was no faster.
_OPT_LEVEL = "1"
# Modules find each other through capsules; to export their functions as well would only take memory.
_HIDDEN = ["-fvisibility=hidden"]


class CustomBuildHook(BuildHookInterface[Any]):
    """Compiles, and puts the extensions into the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel" or version == "editable":
            return
        if not is_current():
            compile_in_place()
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["force_include"].update(
            {str(path): str(path.relative_to(_SOURCE)) for path in _extensions(_SOURCE)}
        )


def modules() -> list[Path]:
    """The modules to compile, below the source directory."""
    found = _named("modules", ".py")
    for path in found:
        source = (_SOURCE / path).read_text(encoding="utf-8")
        if re.search(r"^ *async (def|for|with) ", source, re.MULTILINE):
            raise ValueError(
                f"{path} has coroutines, which are not compiled; take it out of pyproject.toml"
            )
        if re.search(r"^class \w+\(.*=", source, re.MULTILINE):
            raise ValueError(
                f"{path} has a class with options, such as frozen=True, which compiling it would drop; "
                "move the class to a module that is not compiled"
            )
    return found


def _named(kind: str, suffix: str) -> list[Path]:
    settings = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    named: list[str] = settings["tool"]["quoracy"]["compiled"].get(kind, [])
    paths = [Path("quoracy", f"{name}{suffix}") for name in named]
    for path in paths:
        if not (_SOURCE / path).is_file():
            raise FileNotFoundError(f"pyproject.toml names {path}, which does not exist")
    return paths


def is_current() -> bool:
    """Whether the extensions are there, and were compiled from the source as it is now."""
    return is_compiled() and _STAMP.is_file() and _STAMP.read_text(encoding="ascii") == _digest()


def is_compiled() -> bool:
    """Whether there is any extension next to the source."""
    return next(_extensions(_SOURCE), None) is not None


def compile_in_place() -> None:
    """Make the extensions and put them next to their source."""
    from mypyc.build import mypycify  # part of mypy
    from setuptools import Distribution, Extension
    from setuptools.command.build_ext import build_ext

    paths = modules()
    _STAMP.unlink(missing_ok=True)
    _BUILD.mkdir(parents=True, exist_ok=True)
    digest = _digest()
    with chdir(_SOURCE):  # where paths of files have the names of modules
        extensions = [
            extension
            for name, group in _libraries(paths).items()
            for extension in mypycify(
                [f"--cache-dir={_BUILD / 'mypy'}", *map(str, group)],
                opt_level=_OPT_LEVEL,
                debug_level="0",
                group_name=name,
                multi_file=True,
                target_dir=str(_BUILD / "c" / name),
            )
        ]
        extensions += [
            Extension(".".join(path.with_suffix("").parts), [str(path)])
            for path in _named("c_modules", ".c")
        ]
        if sys.platform != "win32":
            for extension in extensions:
                extension.extra_compile_args += _HIDDEN
        command = build_ext(Distribution({"name": "quoracy", "ext_modules": extensions}))
        command.build_lib, command.build_temp = str(_BUILD / "lib"), str(_BUILD / "temp")
        command.ensure_finalized()
        with _in_parallel():
            command.run()
        made = [Path(path) for path in command.get_outputs()]
    for path in _extensions(_SOURCE):
        path.unlink()
    for path in made:
        shutil.copyfile(path, _SOURCE / path.relative_to(_BUILD / "lib"))
    _STAMP.write_text(digest, encoding="ascii")


def _libraries(paths: Sequence[Path]) -> dict[str, list[Path]]:
    """The modules that share a library, by its name.

    A library for each module takes more memory than one for many.  But an agent needs nothing of the
    stores and their faces, and these need nothing of membership: there are two.
    """
    libraries: dict[str, list[Path]] = {}
    for path in paths:
        name = "quoracy_membership" if path.parts[1] == "membership" else "quoracy"
        libraries.setdefault(name, []).append(path)
    return libraries


@contextmanager
def _in_parallel() -> Iterator[None]:
    """Compile as many files at a time as there are processors, and only those that changed.

    Without this, the files of one extension are compiled one after the other, each every time.
    """
    from distutils import ccompiler  # setuptools' own

    compiler: Any = ccompiler.CCompiler
    one_by_one = compiler.compile

    def compile_all(
        self: Any, sources: list[str], output_dir: str, depends: Sequence[str] = (), **options: Any
    ) -> list[str]:
        def compile_one(source: str) -> list[str]:
            objects: list[str] = self.object_filenames([source], output_dir=output_dir)
            if all(_is_newer(Path(path), [source, *depends]) for path in objects):
                return objects
            made: list[str] = one_by_one(self, [source], output_dir, depends=depends, **options)
            return made

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            return [path for paths in pool.map(compile_one, sources) for path in paths]

    compiler.compile = compile_all
    try:
        yield
    finally:
        compiler.compile = one_by_one


def _is_newer(path: Path, than: Sequence[str]) -> bool:
    return path.exists() and path.stat().st_mtime >= max(Path(each).stat().st_mtime for each in than)


def _extensions(directory: Path) -> Iterator[Path]:
    for suffix in ("so", "pyd"):
        yield from sorted(directory.glob(f"quoracy*__mypyc.*{suffix}"))
        yield from sorted(directory.glob(f"quoracy/**/*.{suffix}"))


def _digest() -> str:
    """A digest of the source, of this file, and of the version of Python."""
    digest = hashlib.sha256(sys.version.encode() + Path(__file__).read_bytes())
    for path in modules() + _named("c_modules", ".c"):
        digest.update(str(path).encode() + b"\0" + (_SOURCE / path).read_bytes())
    return digest.hexdigest()


def main() -> None:
    if is_current():
        sys.stdout.write("compiled modules are up to date\n")
    else:
        compile_in_place()


if __name__ == "__main__":
    main()
