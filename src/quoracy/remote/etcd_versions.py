"""Which etcds are known to damage data, to be ended by a client or to end leases, by their version.

The list is short on purpose: it has only faults that etcd's own maintainers have published, and that
are a reason not to run the version.
"""

from __future__ import annotations

import re

__all__ = ["known_faults"]

_VERSION = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")

# etcd's CHANGELOG-3.5.md lists the fixes under 3.5.3 (pull request 13908), 3.5.5 (issue 14110) and
# 3.5.13 (pull request 17425), CHANGELOG-3.4.md the last of them under 3.4.31 (pull request 17465).
_FIRST = (3, 5, 0)
_INCONSISTENCY_FIXED = (3, 5, 3)
_PANIC_FIXED = (3, 5, 5)
_REVOCATION_FIXED = ((3, 4, 31), (3, 5, 13))


def known_faults(version: str) -> str | None:
    """What is wrong with this version and what to do, or None.

    >>> known_faults("3.5.1").partition(":")[0]
    'etcd 3.5.1 can corrupt data'
    >>> known_faults("3.5.4").partition(":")[0]
    'etcd 3.5.4 can be ended by a client'
    >>> known_faults("3.4.23").partition(":")[0]
    'etcd 3.4.23 can end sessions that are alive'
    >>> known_faults("3.4.31") is None
    True
    """
    found = _VERSION.match(version)
    if found is None:
        return None
    name = found[0].removeprefix("v")
    number = tuple(int(part) for part in found.groups())
    if _FIRST <= number < _INCONSISTENCY_FIXED:
        return (
            f"etcd {name} can corrupt data: a member that is killed under load "
            "may come back with contents that differ from the others' (etcd#13766, in 3.5.0, 3.5.1 and "
            "3.5.2); use 3.5.13 or newer, or 3.4.31."
        )
    if _FIRST <= number < _PANIC_FIXED:
        return (
            f"etcd {name} can be ended by a client: a member panics when one hangs up while its "
            "transaction reads (etcd#14110, in 3.5.0 to 3.5.4); use 3.5.13 or newer, or 3.4.31."
        )
    if number < _REVOCATION_FIXED[0] or _FIRST <= number < _REVOCATION_FIXED[1]:
        return (
            f"etcd {name} can end sessions that are alive: a leader that stood still for seconds "
            "revokes leases that another one has renewed meanwhile (etcd#15247, before 3.4.31 and "
            "3.5.13); use 3.5.13 or newer, or 3.4.31."
        )
    return None
