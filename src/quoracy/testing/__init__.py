"""Tests against loss: a server, connections, a clock and faults for tests of code that uses Quoracy.

With pytest there is nothing to import: the fixtures `quoracy_client`, `quoracy_connect`,
`quoracy_store`, `quoracy_server`, `quoracy_url`, `quoracy_sync_client`, `quoracy_sync_connect`,
`quoracy_clock` and `quoracy_faults` are there once Quoracy is installed.  Without it:

    async with quoracy.testing.memory(clock=clock) as place, place.connect() as q: ...
    with quoracy.testing.server() as server, quoracy.testing.Faults() as faults: ...

Each name is imported when it is first used: pytest loads the plugin with every run, and a run without
these fixtures should not wait for that.
"""

# Type checkers take this for true; importing it from `typing` would slow every run down.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from quoracy.testing.clock import VirtualClock as VirtualClock
    from quoracy.testing.faults import Fault as Fault
    from quoracy.testing.faults import Faults as Faults
    from quoracy.testing.faults import Link as Link
    from quoracy.testing.local_server import Server as Server
    from quoracy.testing.local_server import server as server
    from quoracy.testing.local_store import Connect as Connect
    from quoracy.testing.local_store import Memory as Memory
    from quoracy.testing.local_store import SyncConnect as SyncConnect
    from quoracy.testing.local_store import memory as memory

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
    "Connect": "local_store",
    "Fault": "faults",
    "Faults": "faults",
    "Link": "faults",
    "Memory": "local_store",
    "Server": "local_server",
    "SyncConnect": "local_store",
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
