"""How long the fault tests run: some seconds by default, thoroughly with QUORACY_FAULTS=long."""

from __future__ import annotations

import os

__all__ = ["LONG", "rounds"]

LONG = os.environ.get("QUORACY_FAULTS") == "long"


def rounds(short: int, long: int) -> int:
    return long if LONG else short
