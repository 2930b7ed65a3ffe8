"""The `mypyc_attr` decorator for compiled classes, which has no effect without mypyc.

`@mypyc_attr(acyclic=True)` declares that instances of a class are never part of a reference cycle.
Python's garbage collector then does not track them, and they take 16 bytes less.  The declaration must
be true: a cycle of such instances is never freed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr
else:
    # mypyc finds the name when it compiles; the source runs without the package.
    def mypyc_attr(**_):
        return lambda cls: cls


__all__ = ["mypyc_attr"]
