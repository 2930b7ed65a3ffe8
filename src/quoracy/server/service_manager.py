"""Telling systemd how far the server is, if it was systemd that started it (`Type=notify`).

The protocol is sd_notify(3): one datagram to the socket that NOTIFY_SOCKET names.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping

__all__ = ["tell_service_manager"]

_log = logging.getLogger(__name__)


def tell_service_manager(state: str, *, environ: Mapping[str, str] = os.environ) -> None:
    place = environ.get("NOTIFY_SOCKET")
    if not place:
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            # A leading @ stands for the NUL of Linux's abstract names.
            sender.sendto(state.encode(), "\0" + place[1:] if place.startswith("@") else place)
    except OSError as error:
        _log.warning("NOTIFY_SOCKET %s cannot be written to: %s", place, error)
