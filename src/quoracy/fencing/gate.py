"""Gates: each keeps the highest token it has seen of each resource, and refuses lower ones.

A lock with a time to live cannot stop a holder that was paused for longer than that: it resumes, still
assumes that it has the lock, and writes.  The token can.  Each holder's is larger than the one before,
the holder sends it with every write, and the resource refuses a token lower than one it has seen.

Wherever it is kept, a gate is one atomic step, "raise the highest to this token, and say what it is
now", and one comparison of the answer, `refuse_stale`.  The gates differ only in how the step is made.

Invariants
    * The highest of a resource never decreases, and no resource is ever forgotten.
    * Equal tokens are admitted: one holder writes many times.
    * Anything but a plain return means: not admitted.  A gate that cannot know refuses.
    * Asking twice is harmless: an admission changes nothing but the highest.

A gate that is asked before a write that goes elsewhere narrows the window and does not close it: a
larger token may be admitted between the two.  Only a check in the same transaction as the write closes
it.
"""

from __future__ import annotations

from typing import Protocol

from quoracy.errors import InvalidRequest, StaleToken

__all__ = ["RESOURCE_BYTES_MAX", "TOKEN_MAX", "Gate", "SyncGate", "refuse_stale", "require_valid"]

# What a signed 64-bit column holds; revisions of a store, which tokens are, are such numbers.
TOKEN_MAX = 2**63 - 1
# An index entry of PostgreSQL has room for about 2,700 bytes.
RESOURCE_BYTES_MAX = 1_024


class Gate(Protocol):
    """Refuses tokens lower than the highest it has seen.

    Any object with this method is one; `FencingMiddleware` takes any.
    """

    async def admit(self, resource: str, token: int) -> None:
        """Return if no larger token was seen for `resource`, and remember this one.

        Raises `StaleToken` otherwise; `Unavailable` if the gate cannot be asked now; `InvalidRequest`
        for a resource or a token that cannot be one.
        """


class SyncGate(Protocol):
    """The same for threads and scripts: `admit_sync` returns, or raises, as `Gate.admit` does."""

    def admit_sync(self, resource: str, token: int) -> None:
        """Return if no larger token was seen for `resource`, and remember this one."""


def refuse_stale(resource: str, *, token: int, highest: int) -> None:
    """Raise `StaleToken` if the highest, once raised to this token, is larger than the token.

    For one of the statements, run without a helper: `highest` is what it returned.
    """
    if highest > token:
        raise StaleToken(resource, token=token, highest=highest)


def require_valid(resource: str, token: int) -> None:
    """Raise `InvalidRequest` unless every gate could keep this resource and this token."""
    # A bool is an int to Python, and True would pass for token 1.
    if type(token) is not int or not 0 <= token <= TOKEN_MAX:
        raise InvalidRequest(
            f"{token!r} is no fencing token: that is a whole number from 0 to {TOKEN_MAX}. "
            "Pass on the token of the lock as it came, such as held.token."
        )
    try:
        size = len(resource.encode())
    except UnicodeEncodeError:
        size = 0
    if not 0 < size <= RESOURCE_BYTES_MAX or "\0" in resource:
        shown = resource if len(resource) <= 80 else resource[:80] + "..."
        raise InvalidRequest(
            f"{shown!r} cannot name a resource: a name is 1 to {RESOURCE_BYTES_MAX:,} bytes of UTF-8 "
            "without a NUL. Choose a shorter or plainer one."
        )
