"""What a compiled class can be told, where mypyc knows of it and where there is no mypyc.

`@mypyc_attr(acyclic=True)`: what its instances refer to never leads back to them.  Then they are no
business of Python's garbage collector, and take 16 bytes less.  Whoever writes that vouches for it: a
cycle of such instances is never freed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr
else:
    # mypyc finds the name when it compiles; nobody needs the package in order to run the source.
    def mypyc_attr(**_):
        return lambda cls: cls


__all__ = ["mypyc_attr"]
