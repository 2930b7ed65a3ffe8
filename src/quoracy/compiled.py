"""The two forms of the hot modules: C extensions, or their source.

An extension that mypyc made of a module lies next to its source, and Python prefers it.  With
`QUORACY_PURE=1` in the environment the source is run: to debug, to profile by line, or to see whether
the compiler makes a difference.

`quoracy --version` imports this module, so it imports next to nothing.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES, FileFinder, SourceFileLoader

TYPE_CHECKING = False  # as in quoracy/__init__.py
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec

__all__ = ["compile_command", "form", "is_compiled", "use_source"]

_PACKAGE = os.path.dirname(os.path.abspath(__file__))
# The modules are compiled together, or not at all.
_EXAMPLE = os.path.join(_PACKAGE, "engines", "embedded", "memory", "state")


def is_compiled() -> bool:
    """Whether the hot modules of this process are, or would be, C extensions."""
    if os.environ.get("QUORACY_PURE"):
        return False
    return any(os.path.exists(_EXAMPLE + suffix) for suffix in EXTENSION_SUFFIXES)


def form() -> str:
    """How the hot modules run, for people: `compiled`, or `from source` and why or what to do."""
    if is_compiled():
        return "compiled"
    if os.environ.get("QUORACY_PURE"):
        return "from source, as QUORACY_PURE says"
    command = compile_command()
    return f"from source; compile with: {command}" if command else "from source"


def compile_command() -> str | None:
    """The command that compiles the hot modules of this installation.

    None if they are compiled, if QUORACY_PURE is set, or if there is no C compiler here.
    """
    if is_compiled() or os.environ.get("QUORACY_PURE") or not _has_compiler():
        return None
    root = os.path.dirname(os.path.dirname(_PACKAGE))
    if os.path.exists(os.path.join(root, "hatch_build.py")):  # a working tree
        return "make compile" if os.path.samefile(root, os.getcwd()) else f"make -C {root} compile"
    from shlex import quote

    pip = f"{quote(sys.executable)} -m pip install --force-reinstall --no-deps --no-cache-dir"
    return f"HATCH_BUILD_HOOKS_ENABLE=1 {pip} --no-binary quoracy {quote(_requirement())}"


def _has_compiler() -> bool:
    python = f"python{sys.version_info.major}.{sys.version_info.minor}"
    headers = os.path.join(sys.base_prefix, "include", python, "Python.h")
    # Not shutil.which: importing shutil takes longer than all the rest of `quoracy --version`.
    return os.path.exists(headers) and any(
        os.access(os.path.join(directory, "cc"), os.X_OK) for directory in os.get_exec_path()
    )


def _requirement() -> str:
    """What pip installed this from: a file or a URL if it was given one (PEP 610), else the name."""
    import json
    from glob import glob
    from urllib.parse import unquote, urlparse

    for path in glob(os.path.join(os.path.dirname(_PACKAGE), "quoracy-*.dist-info", "direct_url.json")):
        with open(path, encoding="utf-8") as file:
            url: str = json.load(file)["url"]
        if not url.endswith(".whl"):
            return unquote(urlparse(url).path) if url.startswith("file:") else url
    return "quoracy"


def use_source() -> None:
    """Import modules of Quoracy from their source from now on."""
    sys.meta_path.insert(0, _SourceFinder())


class _SourceFinder:
    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: object = None,  # noqa: ARG002 (Python passes it)
    ) -> ModuleSpec | None:
        if not fullname.startswith("quoracy."):
            return None
        for entry in path or ():
            finder = FileFinder(entry, (SourceFileLoader, SOURCE_SUFFIXES))
            spec = finder.find_spec(fullname)
            if spec is not None:
                return spec
        # A module written in C has a counterpart in Python, which is used if this one cannot be
        # imported.
        raise ModuleNotFoundError(f"{fullname} has no source in Python", name=fullname)
