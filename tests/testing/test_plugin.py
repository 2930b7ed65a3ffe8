"""The plugin in runs of its own: pytest-asyncio in both modes, anyio, neither of them; and unused."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

STRICT = ("--strict-config", "--strict-markers", "-p", "no:cacheprovider")
WITHOUT_ASYNCIO = ("-p", "no:asyncio")
WITHOUT_ANYIO = ("-p", "no:anyio")

# Every fixture, in tests that are not asynchronous.
SYNCHRONOUS = """
    import urllib.request

    import pytest
    import quoracy

    def test_server(quoracy_server, quoracy_url):
        assert quoracy_server.url == quoracy_url
        assert urllib.request.urlopen(f"http://{quoracy_server.address}/health").status == 200

    def test_client_clock_and_faults(quoracy_sync_client, quoracy_clock, quoracy_faults):
        with pytest.raises(quoracy.LockLost), quoracy_sync_client.lock("a") as held:
            with quoracy_faults.pause(quoracy_sync_client):
                quoracy_clock.advance_sync(20)
            held.check()

    def test_connect(quoracy_sync_client, quoracy_sync_connect, quoracy_server):
        quoracy_sync_client.counter("n").add(1)
        with quoracy_sync_connect(identity="b") as other:
            assert other.identity == "b"
            assert other.counter("n").get() == 1

    def test_time_is_real_unless_asked_otherwise(quoracy_sync_client):
        held = quoracy_sync_client.lock("a").acquire()
        assert held.remaining_s < 10
        before = held.remaining_s
        with pytest.raises(quoracy.TimedOut):
            quoracy_sync_client.lock("a").acquire(timeout=0.05)
        assert held.remaining_s < before
"""

# Every fixture, in asynchronous tests; {mark} is how they are told from others.
ASYNCHRONOUS = """
    import asyncio

    import pytest
    import quoracy

    {mark}

    @{fixture}
    async def worker(quoracy_client, {backend}):
        '''What users build on top of ours.'''
        held = await quoracy_client.lock("a").acquire()
        yield held
        await held.release()

    async def test_everything_is_on_the_loop_of_the_test(quoracy_client, quoracy_store):
        assert quoracy_client.session_renewal._loop is asyncio.get_running_loop()
        await quoracy_client.counter("n").add(1)
        assert (await quoracy_store.range(b"n")).kvs or (await quoracy_store.status()).keys_count

    async def test_fixtures_on_top(worker, quoracy_client, quoracy_faults, quoracy_clock):
        await quoracy_faults.expire(quoracy_client)
        await quoracy_clock.advance(4)
        assert not worker.is_held

    async def test_connect(quoracy_client, quoracy_connect):
        await quoracy_client.counter("n").add(1)
        async with quoracy_connect(identity="b") as other:
            assert await other.counter("n").get() == 1

    async def test_on_a_server(
        quoracy_client, quoracy_connect, quoracy_server, quoracy_url, quoracy_store, quoracy_faults,
        quoracy_clock,
    ):
        async with quoracy.connect(quoracy_url) as other:
            await other.counter("n").add(1)
        assert await quoracy_client.counter("n").get() == 1
        assert (await quoracy_store.status()).engine.startswith("etcd")
        held = await quoracy_client.lock("a").acquire()
        with quoracy_faults.partition(quoracy_client):
            await quoracy_clock.advance(10)
        assert not held.is_held

    async def test_left_broken(quoracy_faults, quoracy_client, quoracy_clock):
        await quoracy_client.lock("a").acquire()
        quoracy_faults.partition(quoracy_client)
        quoracy_faults.pause(quoracy_client)
"""
ASYNCHRONOUS_COUNT = 5


# Nothing is left when the tests are over: the run fails otherwise.
WATCHFUL = """
    import gc
    import threading

    import psutil
    import pytest
    import uvloop

    def pytest_sessionstart(session):
        uvloop.new_event_loop().close()  # the first one opens a pipe for signals, for good
        session.stash[FILES] = psutil.Process().num_fds()

    def pytest_sessionfinish(session):
        gc.collect()
        left = [thread.name for thread in threading.enumerate() if thread.name != "MainThread"]
        files = psutil.Process().num_fds() - session.stash[FILES]
        if left or files > 0:
            pytest.exit(f"left behind: {left}, {files} files", returncode=9)

    FILES = pytest.StashKey()
"""


def configure(pytester: pytest.Pytester, *lines: str) -> None:
    settings = "\n".join(["[pytest]", "filterwarnings = error", "timeout = 30", *lines])
    pytester.makefile(".ini", pytest=settings)


def test_pytest_asyncio_in_auto_mode(pytester: pytest.Pytester) -> None:
    configure(pytester, "asyncio_mode = auto", "asyncio_default_fixture_loop_scope = function")
    pytester.makepyfile(
        test_sync=SYNCHRONOUS,
        test_async=ASYNCHRONOUS.format(mark="", fixture="pytest.fixture", backend="request"),
        conftest=WATCHFUL,
    )
    result = pytester.runpytest_subprocess(*STRICT)
    result.assert_outcomes(passed=4 + ASYNCHRONOUS_COUNT)
    assert result.ret == pytest.ExitCode.OK, result.stderr.str()


def test_pytest_asyncio_and_anyio_beside_each_other_with_marks(pytester: pytest.Pytester) -> None:
    """The same fixtures, set up by one and by the other, in one run; and on a loop that is shared."""
    configure(pytester, "asyncio_default_fixture_loop_scope = function")
    strict = {"fixture": "__import__('pytest_asyncio').fixture", "backend": "request"}
    pytester.makepyfile(
        test_1_asyncio=ASYNCHRONOUS.format(mark="pytestmark = pytest.mark.asyncio", **strict),
        test_2_anyio=ASYNCHRONOUS.format(
            mark="pytestmark = pytest.mark.anyio", fixture="pytest.fixture", backend="anyio_backend"
        ),
        test_3_module_loop="""
            import asyncio
            import pytest

            pytestmark = pytest.mark.asyncio(loop_scope="module")

            async def test_loop_of_the_module(quoracy_client):
                assert quoracy_client.session_renewal._loop is asyncio.get_running_loop()
        """,
        test_4_trio="""
            import pytest

            @pytest.fixture
            def anyio_backend():
                return "trio"

            def test_wrong(anyio_backend, quoracy_client): ...
        """,
        conftest="""
            import pytest

            @pytest.fixture(scope="session")
            def anyio_backend():
                return "asyncio"
        """,
    )
    result = pytester.runpytest_subprocess(*STRICT)
    result.assert_outcomes(passed=2 * ASYNCHRONOUS_COUNT + 1, errors=1)
    result.stdout.fnmatch_lines(["*Quoracy runs on asyncio, and this test on trio*"])


def test_without_either_synchronous_tests_run_and_others_are_told_what_to_do(
    pytester: pytest.Pytester,
) -> None:
    configure(pytester)
    pytester.makepyfile(
        test_sync=SYNCHRONOUS,
        test_wrong="def test_wrong(quoracy_client): ...",
    )
    result = pytester.runpytest_subprocess(*STRICT, *WITHOUT_ASYNCIO, *WITHOUT_ANYIO)
    result.assert_outcomes(passed=4, errors=1)
    result.stdout.fnmatch_lines(["*asks for quoracy_sync_client*"])


def test_run_that_does_not_use_it_loads_none_of_it(pytester: pytest.Pytester) -> None:
    configure(pytester, "asyncio_default_fixture_loop_scope = function")
    pytester.makepyfile(
        """
        import sys

        def test_nothing_is_loaded(pytestconfig):
            assert pytestconfig.pluginmanager.hasplugin("quoracy")
            loaded = {name for name in sys.modules if name.split(".")[0] == "quoracy"}
            assert loaded == {"quoracy", "quoracy.testing", "quoracy.testing.plugin"}
        """
    )
    pytester.runpytest_subprocess(*STRICT).assert_outcomes(passed=1)
