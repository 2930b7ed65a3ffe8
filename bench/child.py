"""What runs in a process of its own, so that its time and memory are nobody else's.

python -m bench.child import | open URL
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

import psutil

__all__: list[str] = []


def main(arguments: list[str]) -> None:
    process = psutil.Process()
    bare = process.memory_info().rss
    from quoracy.engines.opening import open_embedded

    imported = process.memory_info().rss
    result: dict[str, float] = {"bare_bytes": bare, "imported_bytes": imported}

    async def measure_open(url: str) -> None:
        started = time.perf_counter()
        async with open_embedded(url) as store:
            result["open_s"] = time.perf_counter() - started
            result["open_bytes"] = process.memory_info().rss
            result["keys"] = (await store.status()).keys_count

    if arguments[0] == "open":
        asyncio.run(measure_open(arguments[1]))
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1:])
