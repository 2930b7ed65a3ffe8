"""Tests against loss: a server, connections, a clock and faults for the tests of whoever uses Quorate.

With pytest there is nothing to import: the fixtures `quorate_client`, `quorate_connect`,
`quorate_store`, `quorate_server`, `quorate_url`, `quorate_sync_client`, `quorate_sync_connect`,
`quorate_clock` and `quorate_faults` are there once Quorate is installed.  Without it:

    async with quorate.testing.memory(clock=clock) as place, place.connect() as q: ...
    with quorate.testing.server() as server, quorate.testing.Faults() as faults: ...

What is offered is imported when it is first used: pytest loads the plugin with every run, and a run
that does not use it should not wait for it.
"""

# Type checkers take this for true; to import it from `typing` takes about as long as starting Python.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from quorate.testing.clock import VirtualClock as VirtualClock
    from quorate.testing.faults import Fault as Fault
    from quorate.testing.faults import Faults as Faults
    from quorate.testing.faults import Link as Link
    from quorate.testing.local_server import Server as Server
    from quorate.testing.local_server import server as server
    from quorate.testing.local_store import Memory as Memory
    from quorate.testing.local_store import memory as memory
    from quorate.testing.opens import Connect as Connect
    from quorate.testing.opens import SyncConnect as SyncConnect

__all__ = [
    "Connect",
    "Fault",
    "Faults",
    "Link",
    "Memory",
    "Server",
    "SyncConnect",
    "VirtualClock",
    "memory",
    "server",
]

_HOMES = {
    "Connect": "opens",
    "Fault": "faults",
    "Faults": "faults",
    "Link": "faults",
    "Memory": "local_store",
    "Server": "local_server",
    "SyncConnect": "opens",
    "VirtualClock": "clock",
    "memory": "local_store",
    "server": "local_server",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
