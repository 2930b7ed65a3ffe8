"""The pytest plugin: fixtures for tests of code that uses Quoracy.  PYTEST_DONT_REWRITE

For asynchronous tests, with pytest-asyncio or anyio:
    quoracy_client    an open connection to a store in memory
    quoracy_connect   more of them: `async with quoracy_connect(identity="b") as other`
    quoracy_store     the store itself

For tests of any kind:
    quoracy_server    a real server in this process
    quoracy_url       its URL
    quoracy_clock     time that stands still until the test moves it
    quoracy_faults    faults: expire, pause, disconnect, partition, lose_answers

For tests that are not asynchronous:
    quoracy_sync_client, quoracy_sync_connect    the same with `quoracy.sync`, on quoracy_server

The fixtures that a test asks for decide the others: with `quoracy_clock`, everything lives by that
clock, otherwise by the time that really passes; with `quoracy_server` or `quoracy_url`, connections go
to that server, otherwise to a store in memory.

Invariants
    * Nothing is imported before a fixture is used: a run that does not use this does not pay for it.
    * Neither pytest-asyncio nor anyio is needed; whichever runs the test sets the fixtures up, on the
      loop of the test.
"""

from __future__ import annotations

import inspect

import pytest

# Type checkers take this for true; it costs a run without these fixtures nothing.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Generator, Iterator
    from typing import Any

    from quoracy import sync
    from quoracy.client.connection import Connection
    from quoracy.store.api import Store
    from quoracy.testing import Connect, Faults, Memory, Server, SyncConnect, VirtualClock

_ON_SERVER = ("quoracy_server", "quoracy_url")


# -- for tests of any kind ---------------------------------------------------------------------


@pytest.fixture
def quoracy_clock() -> VirtualClock:
    """Time that stands still until the test moves it: `await quoracy_clock.advance(30)`.

    Asked for by a test, everything else of Quoracy in it lives by this clock.
    """
    from quoracy.testing import VirtualClock

    return VirtualClock()


@pytest.fixture
def quoracy_faults() -> Iterator[Faults]:
    """What goes wrong: `quoracy_faults.expire(connection)`, `partition`, `pause`, and so on."""
    from quoracy.testing import Faults

    with Faults() as faults:
        yield faults


@pytest.fixture
def quoracy_server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A real server in this process, on a free port, with its data in memory."""
    from quoracy.testing import server

    with server(clock=_clock_of(request)) as running:
        yield running


@pytest.fixture
def quoracy_url(quoracy_server: Server) -> str:
    """The URL of `quoracy_server`, for the code that is tested."""
    return quoracy_server.url


# -- for asynchronous tests --------------------------------------------------------------------


@pytest.fixture
async def _quoracy_place(request: pytest.FixtureRequest) -> AsyncIterator[Memory | Server]:
    """Where connections go."""
    if any(name in request.fixturenames for name in _ON_SERVER):
        yield request.getfixturevalue("quoracy_server")
        return
    from quoracy.testing import memory

    async with memory(clock=_clock_of(request)) as place:
        yield place


@pytest.fixture
async def quoracy_store(_quoracy_place: Memory | Server) -> AsyncIterator[Store]:
    """The store that connections of this test are on; faults do not touch it."""
    async with _quoracy_place.open_store() as store:
        yield store


@pytest.fixture
async def quoracy_connect(_quoracy_place: Memory | Server) -> Connect:
    """Opens another connection: `async with quoracy_connect(session_ttl=5, identity="b") as other`."""
    return _quoracy_place.connect


@pytest.fixture
async def quoracy_client(_quoracy_place: Memory | Server) -> AsyncIterator[Connection]:
    """An open connection, as `quoracy.connect` gives it."""
    async with _quoracy_place.connect() as connection:
        yield connection


# -- for tests that are not asynchronous -------------------------------------------------------


@pytest.fixture
def quoracy_sync_connect(quoracy_server: Server) -> SyncConnect:
    """Opens another connection: `with quoracy_sync_connect(identity="b") as other`."""
    return quoracy_server.sync_connect


@pytest.fixture
def quoracy_sync_client(quoracy_server: Server) -> Iterator[sync.Connection]:
    """An open connection to `quoracy_server`, as `quoracy.sync.connect` gives it."""
    with quoracy_server.sync_connect() as connection:
        yield connection


# -- how asynchronous fixtures are run ---------------------------------------------------------


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """Have our asynchronous fixtures run by the plugin that runs the test, on the loop of the test."""
    function = fixturedef.func
    if getattr(function, "__module__", None) == __name__ and _is_asynchronous(function):
        # Until the next test: pytest-asyncio looks at the fixtures again when it calls the test.
        settable: Any = fixturedef
        settable.func = _for_runner(getattr(function, "original", function), request)
    return (yield)


def _for_runner(function: Any, request: pytest.FixtureRequest) -> object:
    """The function of a fixture, marked as the plugin that runs the test expects."""
    if "anyio_backend" in request.fixturenames:
        _check_backend(request.getfixturevalue("anyio_backend"))
        return function  # anyio runs every asynchronous fixture of its tests
    marker = request.node.get_closest_marker("asyncio")
    if marker is None or not request.config.pluginmanager.hasplugin("asyncio"):
        pytest.fail(
            "This fixture of Quoracy is for asynchronous tests, and nothing runs this test as one. "
            "With pytest-asyncio, mark it with @pytest.mark.asyncio (or set asyncio_mode = auto); with "
            "anyio, with @pytest.mark.anyio. A test that is not asynchronous asks for "
            "quoracy_sync_client.",
            pytrace=False,
        )
    scope = marker.kwargs.get("loop_scope") or request.config.getini("asyncio_default_test_loop_scope")
    return _for_pytest_asyncio(function, scope)


def _for_pytest_asyncio(function: Any, loop_scope: str) -> object:
    """With the mark that pytest-asyncio looks for; on a copy, since others may run the next test."""
    import types

    import pytest_asyncio

    marked: Any = types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__
    )
    marked.original = function
    pytest_asyncio.fixture(marked, loop_scope=loop_scope)  # type: ignore[call-overload]
    return marked


def _check_backend(backend: str | tuple[str, object]) -> None:
    name = backend if isinstance(backend, str) else backend[0]
    if name != "asyncio":
        pytest.fail(
            f"Quoracy runs on asyncio, and this test on {name}: give it a fixture `anyio_backend` that "
            'returns "asyncio".',
            pytrace=False,
        )


def _is_asynchronous(function: object) -> bool:
    return inspect.isasyncgenfunction(function) or inspect.iscoroutinefunction(function)


def _clock_of(request: pytest.FixtureRequest) -> VirtualClock | None:
    """The test's clock, if it asked for one."""
    if "quoracy_clock" not in request.fixturenames:
        return None
    clock: VirtualClock = request.getfixturevalue("quoracy_clock")
    return clock
