"""Duplicates of a connection's descriptor, for threads that send replies (`store.completion`)."""

from __future__ import annotations

import asyncio
import os

__all__ = ["NO_DESCRIPTOR", "own_descriptor"]

NO_DESCRIPTOR = -1


def own_descriptor(transport: asyncio.Transport) -> int:
    """A duplicate of the transport's descriptor, or `NO_DESCRIPTOR` if the connection is encrypted.

    The transport may close its own descriptor at any time, and the number may then be used again.
    """
    opened = transport.get_extra_info("socket")
    if opened is None or transport.get_extra_info("sslcontext") is not None:
        return NO_DESCRIPTOR
    try:
        return os.dup(opened.fileno())
    except OSError:  # no descriptors are left: the loop sends all replies
        return NO_DESCRIPTOR
