"""The pytest plugin: fixtures for tests of code that uses Quorate.  PYTEST_DONT_REWRITE

For asynchronous tests, with pytest-asyncio or anyio:
    quorate_client    an open connection to a store in memory
    quorate_connect   more of them: `async with quorate_connect(identity="b") as other`
    quorate_store     the store itself

For tests of any kind:
    quorate_server    a real server in this process
    quorate_url       its URL
    quorate_clock     time that stands still until the test moves it
    quorate_faults    what breaks: expire, pause, disconnect, partition, lose_answers

For tests that are not asynchronous:
    quorate_sync_client, quorate_sync_connect    the same with `quorate.sync`, on quorate_server

What a test asks for decides the world it gets: with `quorate_clock`, everything lives by that clock,
otherwise by the time that really passes; with `quorate_server` or `quorate_url`, connections go to that
server, otherwise to a store in memory.

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

    from quorate import sync
    from quorate.client.connection import Connection
    from quorate.store.api import Store
    from quorate.testing import Connect, Faults, Memory, Server, SyncConnect, VirtualClock

_ON_SERVER = ("quorate_server", "quorate_url")


# -- for tests of any kind ---------------------------------------------------------------------


@pytest.fixture
def quorate_clock() -> VirtualClock:
    """Time that stands still until the test moves it: `await quorate_clock.advance(30)`.

    Asked for by a test, everything else of Quorate in it lives by this clock.
    """
    from quorate.testing import VirtualClock

    return VirtualClock()


@pytest.fixture
def quorate_faults() -> Iterator[Faults]:
    """What goes wrong: `quorate_faults.expire(connection)`, `partition`, `pause`, and so on."""
    from quorate.testing import Faults

    with Faults() as faults:
        yield faults


@pytest.fixture
def quorate_server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A real server in this process, on a free port, with its data in memory."""
    from quorate.testing import server

    with server(clock=_clock_of(request)) as running:
        yield running


@pytest.fixture
def quorate_url(quorate_server: Server) -> str:
    """The URL of `quorate_server`, for the code that is tested."""
    return quorate_server.url


# -- for asynchronous tests --------------------------------------------------------------------


@pytest.fixture
async def _quorate_place(request: pytest.FixtureRequest) -> AsyncIterator[Memory | Server]:
    """Where connections go."""
    if any(name in request.fixturenames for name in _ON_SERVER):
        yield request.getfixturevalue("quorate_server")
        return
    from quorate.testing import memory

    async with memory(clock=_clock_of(request)) as place:
        yield place


@pytest.fixture
async def quorate_store(_quorate_place: Memory | Server) -> AsyncIterator[Store]:
    """The store that connections of this test are on; faults do not touch it."""
    async with _quorate_place.open_store() as store:
        yield store


@pytest.fixture
async def quorate_connect(_quorate_place: Memory | Server) -> Connect:
    """Opens another connection: `async with quorate_connect(session_ttl=5, identity="b") as other`."""
    return _quorate_place.connect


@pytest.fixture
async def quorate_client(_quorate_place: Memory | Server) -> AsyncIterator[Connection]:
    """An open connection, as `quorate.connect` gives it."""
    async with _quorate_place.connect() as connection:
        yield connection


# -- for tests that are not asynchronous -------------------------------------------------------


@pytest.fixture
def quorate_sync_connect(quorate_server: Server) -> SyncConnect:
    """Opens another connection: `with quorate_sync_connect(identity="b") as other`."""
    return quorate_server.sync_connect


@pytest.fixture
def quorate_sync_client(quorate_server: Server) -> Iterator[sync.Connection]:
    """An open connection to `quorate_server`, as `quorate.sync.connect` gives it."""
    with quorate_server.sync_connect() as connection:
        yield connection


# -- who runs asynchronous fixtures ------------------------------------------------------------


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """Have our asynchronous fixtures run by whoever runs the test, on the loop of the test."""
    function = fixturedef.func
    if getattr(function, "__module__", None) == __name__ and _is_asynchronous(function):
        # Until the next test: pytest-asyncio looks at the fixtures again when it calls the test.
        settable: Any = fixturedef
        settable.func = _for_runner(getattr(function, "original", function), request)
    return (yield)


def _for_runner(function: Any, request: pytest.FixtureRequest) -> object:
    """The function of a fixture, as whoever runs the test knows it for its own."""
    if "anyio_backend" in request.fixturenames:
        _check_backend(request.getfixturevalue("anyio_backend"))
        return function  # anyio runs every asynchronous fixture of its tests
    marker = request.node.get_closest_marker("asyncio")
    if marker is None or not request.config.pluginmanager.hasplugin("asyncio"):
        pytest.fail(
            "This fixture of Quorate is for asynchronous tests, and nothing runs this test as one. "
            "With pytest-asyncio, mark it with @pytest.mark.asyncio (or set asyncio_mode = auto); with "
            "anyio, with @pytest.mark.anyio. A test that is not asynchronous asks for "
            "quorate_sync_client.",
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
            f"Quorate runs on asyncio, and this test on {name}: give it a fixture `anyio_backend` that "
            'returns "asyncio".',
            pytrace=False,
        )


def _is_asynchronous(function: object) -> bool:
    return inspect.isasyncgenfunction(function) or inspect.iscoroutinefunction(function)


def _clock_of(request: pytest.FixtureRequest) -> VirtualClock | None:
    """The test's clock, if it asked for one."""
    if "quorate_clock" not in request.fixturenames:
        return None
    clock: VirtualClock = request.getfixturevalue("quorate_clock")
    return clock
