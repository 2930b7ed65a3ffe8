"""Which etcds are known to lose or damage data, by the version they say they are.

The list is short on purpose: what is in it was published by etcd's own maintainers as corruption of
data, not as a crash or a slowness.
"""

from __future__ import annotations

import re

__all__ = ["known_faults"]

_VERSION = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")

# etcd's CHANGELOG-3.5.md lists the fix, its pull request 13908, under 3.5.3.
_INCONSISTENT_FIRST = (3, 5, 0)
_INCONSISTENT_FIXED = (3, 5, 3)


def known_faults(version: str) -> str | None:
    """One sentence on what is wrong with this version and what to do, or None.

    >>> known_faults("3.5.1").partition(":")[0]
    'etcd 3.5.1 can corrupt data'
    >>> known_faults("3.4.23") is None
    True
    """
    found = _VERSION.match(version)
    if found is None:
        return None
    number = tuple(int(part) for part in found.groups())
    if _INCONSISTENT_FIRST <= number < _INCONSISTENT_FIXED:
        return (
            f"etcd {found[0].removeprefix('v')} can corrupt data: a member that is killed under load "
            "may come back with contents that differ from the others' (etcd#13766, in 3.5.0, 3.5.1 and "
            "3.5.2); use 3.5.3 or newer, or 3.4."
        )
    return None
