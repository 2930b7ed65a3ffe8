"""A child process that opens a store and holds it until it is told to close, or killed.

python -m tests.faults.holder OPTIONS
"""

from __future__ import annotations

import asyncio
import os
import sys

import msgspec

from quoracy.engines.opening import open_embedded
from quoracy.errors import DataError
from tests.faults.reports import Closed, Note, Opened, Opening, command, report

__all__ = ["Options"]


class Options(msgspec.Struct, frozen=True):
    path: str


async def main(options: Options) -> None:
    report(Opening(os.getpid()))
    try:
        async with open_embedded(f"sqlite:{options.path}") as store:
            state = await store.hash()
            report(Opened(state.revision, state.compact_revision, state.digest))
            await command()
    except DataError as error:
        report(Note(type(error).__name__, number=getattr(error, "pid", None) or 0, text=str(error)))
    report(Closed())


if __name__ == "__main__":
    asyncio.run(main(msgspec.json.decode(sys.argv[1], type=Options)))
