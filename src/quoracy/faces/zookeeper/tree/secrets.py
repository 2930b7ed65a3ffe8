"""Passwords and ids of sessions: drawn so that nobody guesses them, compared so that nobody learns any.

The module `secrets` draws from the same source, but loads OpenSSL with it, as `hmac` does: 4 MB that a
server needs for nothing else until somebody comes back with a password.
"""

from __future__ import annotations

import os

from quoracy.wire.zookeeper.codes import PASSWORD_BYTES

__all__ = ["is_same", "random_id", "random_password"]


def random_password() -> bytes:
    return os.urandom(PASSWORD_BYTES)


def random_id() -> int:
    """From 0 to 2**63 - 1."""
    return int.from_bytes(os.urandom(8), "big") >> 1


def is_same(one: bytes, other: bytes) -> bool:
    """Takes as long wherever they differ."""
    import hmac

    return hmac.compare_digest(one, other)
