"""The options of a compiled class, with mypyc and without it.

`@mypyc_attr(allow_interpreted_subclasses=True)`: a class that is not compiled may derive from it.
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
