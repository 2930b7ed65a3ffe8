"""Whether the hot modules run as C extensions, and the way back to their source.

An extension that mypyc made of a module lies next to its source, and Python prefers it.  With
`QUORACY_PURE=1` in the environment the source is run: to debug, to profile by line, or to see whether
a difference is the compiler's.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import (
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    ModuleSpec,
    SourceFileLoader,
)
from types import ModuleType

__all__ = ["is_compiled", "use_source"]

_EXAMPLE = "quoracy.engines.embedded.memory.state"  # they are compiled together, or not at all


def is_compiled() -> bool:
    """Whether the hot modules of this process are, or would be, C extensions."""
    spec = importlib.util.find_spec(_EXAMPLE)
    # (Not by what it is not: pytest has a loader of its own for the source of plugins.)
    return spec is not None and isinstance(spec.loader, ExtensionFileLoader)


def use_source() -> None:
    """Import modules of Quoracy from their source from now on."""
    sys.meta_path.insert(0, _SourceFinder())


class _SourceFinder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith("quoracy."):
            return None
        for entry in path or ():
            finder = FileFinder(entry, (SourceFileLoader, SOURCE_SUFFIXES))
            spec = finder.find_spec(fullname, target)
            if spec is not None:
                return spec
        # What has no source (it is written in C) has a counterpart in Python, for whoever finds none.
        raise ModuleNotFoundError(f"{fullname} has no source in Python", name=fullname)
