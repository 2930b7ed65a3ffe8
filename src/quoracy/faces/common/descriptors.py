"""A descriptor of a connection's socket for threads that send replies (see `store.completion`)."""

from __future__ import annotations

import asyncio
import os

__all__ = ["NO_DESCRIPTOR", "own_descriptor"]

NO_DESCRIPTOR = -1


def own_descriptor(transport: asyncio.Transport) -> int:
    """One for us alone, or none if what is written is encrypted.

    The transport's own may be closed, and its number be somebody else's, at any time.
    """
    opened = transport.get_extra_info("socket")
    if opened is None or transport.get_extra_info("sslcontext") is not None:
        return NO_DESCRIPTOR
    try:
        return os.dup(opened.fileno())
    except OSError:  # there are no more of them: then this is done without
        return NO_DESCRIPTOR
