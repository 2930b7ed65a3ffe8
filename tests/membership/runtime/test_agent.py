"""`quoracy agent` and `quoracy members`: what they say, how they end, and what goes wrong."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from quoracy.membership.runtime.keyring import KeyRing, generate_key
from tests.membership.processes.agents import Agents
from tests.membership.runtime.test_join import free_address
from tests.unit.cli.asking import Ask
from tests.unit.cli.asking import ask as ask

QUORACY = [sys.executable, "-W", "error", "-m", "quoracy"]
_SOON_S = 30.0


# -- being a member ----------------------------------------------------------------------------------


async def test_an_agent_tells_who_joins_dies_and_leaves(tmp_path: Path) -> None:
    async with Agents(tmp_path) as agents:
        a = await agents.start("a", "--meta", "zone=x")
        for name in "bcd":
            await agents.start(name, "--join", a.address)
        await agents.until_all_see(set("abcd"), within_s=_SOON_S)
        agents.by_name["b"].kill()
        agents.by_name["c"].signal(signal.SIGTERM)
        agents.by_name["d"].signal(signal.SIGHUP)  # its terminal went away
        await agents.until(lambda: a.present == {"a"}, within_s=_SOON_S)
        assert [await agents.ended(name) for name in "cd"] == [0, 0]
        assert a.of_kind("died") == ["b"]
        assert sorted(a.of_kind("left")) == ["c", "d"]
        [met] = [each for each in agents.by_name["b"].events if each["event"] == "present"][:1]
        assert (met["name"], met["address"], met["meta"]) == ("a", a.address, {"zone": "x"})


async def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    # Its goodbye takes a minute with this.
    async with Agents(tmp_path, settings=["gossip_interval_s=20"]) as agents:
        a = await agents.start("a")
        b = await agents.start("b", "--join", a.address)
        b.signal(signal.SIGINT)
        await agents.until(lambda: b.events[-1]["event"] == "leaving", within_s=_SOON_S)
        b.signal(signal.SIGTERM)
        assert await agents.ended("b") == -signal.SIGTERM


async def test_a_signal_ends_an_agent_that_still_waits_for_its_seeds(tmp_path: Path) -> None:
    with socket.socket() as silent:  # it accepts and says nothing
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        silent.settimeout(_SOON_S)
        async with Agents(tmp_path) as agents:
            a = await agents.begin("a", "--join", f"127.0.0.1:{silent.getsockname()[1]}")
            connection, _ = await asyncio.to_thread(silent.accept)
            with connection:
                a.signal(signal.SIGTERM)
                assert await agents.ended("a") == 0
            assert a.events == []  # it never got as far as that


async def test_a_seed_that_is_not_there_yet_is_found_when_it_is(tmp_path: Path) -> None:
    address = free_address()
    async with Agents(tmp_path) as agents:
        a = await agents.start("a", "--join", address)
        assert f"no seed answers yet ({address}: " in a.stderr()
        await agents.start("b", bind=address)
        await agents.until_all_see({"a", "b"}, within_s=_SOON_S)


async def test_on_a_pipe_each_event_is_a_line_for_people(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *QUORACY, "agent", "--name", "a", "--bind", "127.0.0.1:0", stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        started = (await process.stdout.readline()).decode().split()
        assert started[1:3] == ["started", "a"]
        assert started[4:] == ["UDP", "and", "TCP,", "not", "encrypted"]
        async with Agents(tmp_path, settings=()) as agents:
            await agents.start("b", "--join", started[3].rstrip(","), "--meta", "zone=y")
            joined = (await process.stdout.readline()).decode().split()
            assert (joined[1:3], joined[4:]) == (["joined", "b"], ["zone=y"])
    finally:
        process.terminate()
        await process.wait()
    assert process.returncode == 0


async def test_names_that_could_move_a_cursor_are_escaped(tmp_path: Path, ask: Ask) -> None:
    async with Agents(tmp_path) as agents:
        a = await agents.start("evil\x1b[2Jname", "--meta", "k\n=v\x07")
        said = await asyncio.to_thread(ask, "members", "--agent", a.address)
        assert b"\x1b" not in said.out
        [row] = said.rows
        assert (row[0], row[-1]) == (r"evil\x1b[2Jname", r"k\n=v\x07")


# -- when it goes wrong ------------------------------------------------------------------------------


def test_a_port_in_use_is_one_line_and_exit_code_1(ask: Ask) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        said = ask("agent", "--bind", address)
    assert (said.code, said.out) == (1, b"")
    assert said.err.startswith(f"quoracy: cannot bind {address}: the port is in use")
    assert said.err.count("\n") == 1


def test_a_seed_that_cannot_be_looked_up_is_one_line_and_exit_code_1(ask: Ask) -> None:
    said = ask("agent", "--bind", "127.0.0.1:0", "--join", "no-such-machine.invalid")
    assert (said.code, said.out) == (1, b"")
    assert said.err.startswith("quoracy: no seed took us in (no-such-machine.invalid: ")
    assert said.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--meta", "zone"], "--meta zone: write NAME=VALUE"),
        (["--meta", f"k={'x' * 600}"], "the metadata takes 606 bytes; the limit is 512"),
        (["--set", "probes=1"], "--set probes=1: there is no probes. Give one of probe_interval_s"),
        (["--set", "helpers=many"], "--set helpers=many: Expected `int`"),
        (["--set", "probe_timeout_s=7"], "probe_timeout_s (7.0) must be less than probe_interval_s"),
        (["--join", "a:b"], "'a:b' is no address"),
        (["--bind", ":x"], "':x' is no address"),
        (["--name", ""], "a member's name has 1 to 128 bytes"),
        (["--key-file", "/nonexistent/key"], "the key file /nonexistent/key: No such file"),
    ],
)
def test_what_was_asked_for_wrongly_is_one_line_and_exit_code_2(
    ask: Ask, arguments: list[str], complaint: str
) -> None:
    said = ask("agent", "--bind", "127.0.0.1:0", *arguments)
    assert (said.code, said.out) == (2, b"")
    assert complaint in said.err
    assert said.err.count("\n") == 1


@pytest.mark.parametrize(
    ("contents", "complaint"),
    [
        (b"", "has no key"),
        (b"\xff\xfe", "is not text"),
        (b"not base64!\n", "not base64"),
        (b"c2hvcnQ=\n", "16, 24 or 32 bytes, not 5"),
    ],
)
def test_a_file_that_holds_no_key_is_told_without_showing_it(
    ask: Ask, tmp_path: Path, contents: bytes, complaint: str
) -> None:
    path = tmp_path / "key"
    path.write_bytes(contents)
    for verb in (["agent", "--bind", "127.0.0.1:0"], ["members"]):
        said = ask(*verb, "--key-file", path)
        assert (said.code, said.out) == (2, b"")
        assert str(path) in said.err
        assert complaint in said.err
        assert "not base64!" not in said.err


# -- keys --------------------------------------------------------------------------------------------


def test_keygen_writes_a_key_that_only_its_owner_can_read_and_never_overwrites(
    ask: Ask, tmp_path: Path
) -> None:
    path = tmp_path / "cluster.key"
    assert ask("agent", "keygen", path).code == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    key = path.read_text()
    assert len(KeyRing.from_text(key).fingerprints) == 1
    said = ask("agent", "keygen", path)
    assert said.code == 2
    assert "is there already" in said.err
    assert path.read_text() == key
    [printed] = ask("agent", "keygen").lines
    assert printed != key.strip()
    assert len(KeyRing.from_text(printed).fingerprints) == 1


async def test_agents_with_a_key_answer_only_who_has_it(tmp_path: Path, ask: Ask) -> None:
    key, wrong = tmp_path / "key", tmp_path / "wrong"
    key.write_text(generate_key())
    wrong.write_text(generate_key())
    async with Agents(tmp_path) as agents:
        a = await agents.start("a", "--key-file", str(key))
        await agents.start("b", "--key-file", str(key), "--join", a.address)
        await agents.until_all_see({"a", "b"}, within_s=_SOON_S)

        def members(*arguments: str | Path) -> tuple[int, list[str]]:
            said = ask("members", "--agent", a.address, "-o", "value", *arguments)
            return said.code, said.lines

        assert await asyncio.to_thread(members, "--key-file", key) == (0, ["a", "b"])
        assert await asyncio.to_thread(members, "--key-file", wrong) == (1, [])
        assert await asyncio.to_thread(members) == (1, [])
        assert await asyncio.to_thread(members, "--key-file", key, "--label", "x") == (1, [])


# -- members -----------------------------------------------------------------------------------------


async def test_members_shows_everyone_for_people_pipes_and_programs(tmp_path: Path, ask: Ask) -> None:
    async with Agents(tmp_path) as agents:
        a = await agents.start("a")
        b = await agents.start("b", "--join", a.address, "--meta", "zone=y")
        await agents.until_all_see({"a", "b"}, within_s=_SOON_S)
        said = await asyncio.to_thread(ask, "members", "--agent", a.address)
        assert [row[:3] for row in said.rows] == [["a", a.address, "alive"], ["b", b.address, "alive"]]
        document = (await asyncio.to_thread(ask, "members", "--agent", b.address, "-o", "json")).json
        assert (document["name"], document["health"], document["encrypted"]) == ("b", 0, False)
        first, second = document["members"]
        assert (first["name"], first["state"], first["incarnation"]) == ("a", "alive", 1)
        assert second["meta"] == {"zone": "y"}
        assert {"phi", "rtt_s", "heard_s", "since_s"} <= set(first)
        b.kill()
        await agents.until(lambda: a.of_kind("died") == ["b"], within_s=_SOON_S)
        said = await asyncio.to_thread(ask, "members", "--agent", a.address, "-o", "value")
        assert said.lines == ["a"]


def test_members_of_nobody_is_one_line_and_exit_code_1(ask: Ask) -> None:
    address = free_address()
    said = ask("members", "--agent", address)
    assert (said.code, said.out) == (1, b"")
    assert said.err.startswith(f"quoracy: no member answers at {address}")
    assert said.err.count("\n") == 1


async def test_watching_on_a_pipe_shows_every_change_of_who_is_there(tmp_path: Path) -> None:
    async with Agents(tmp_path) as agents:
        a = await agents.start("a")
        watching = await asyncio.create_subprocess_exec(
            *QUORACY, "members", "--agent", a.address, "--watch", "--every", "0.1", "-o", "value",
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert watching.stdout is not None
        try:
            assert await watching.stdout.readline() == b"a\n"
            await agents.start("b", "--join", a.address)
            async with asyncio.timeout(_SOON_S):
                while await watching.stdout.readline() != b"b\n":
                    pass
        finally:
            watching.send_signal(signal.SIGINT)
            code = await watching.wait()
    assert code == 130


async def test_watching_on_a_terminal_ends_cleanly_and_leaves_the_last_state(tmp_path: Path) -> None:
    async with Agents(tmp_path) as agents:
        a = await agents.start("only-one")
        leader, follower = pty.openpty()
        process = subprocess.Popen(  # noqa: ASYNC220
            [*QUORACY, "members", "--agent", a.address, "--watch", "--every", "0.1"],
            stdin=follower,
            stdout=follower,
            stderr=follower,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "30"},
            start_new_session=True,
        )
        os.close(follower)
        shown = await asyncio.to_thread(_read_until, leader, b"only-one", times=2)
        process.send_signal(signal.SIGINT)
        shown += await asyncio.to_thread(_read_until, leader, None)
        assert await asyncio.to_thread(process.wait, _SOON_S) == 130
        os.close(leader)
    assert shown.count(b"\x1b[?1049h") == shown.count(b"\x1b[?1049l") == 1  # its own screen, and back
    after = shown.rpartition(b"\x1b[?1049l")[2]
    assert b"only-one" in after  # what was last seen stays to be read
    assert b"Traceback" not in shown


def _read_until(descriptor: int, text: bytes | None, *, times: int = 1) -> bytes:
    """Until the text was there so often, or to the end."""
    seen = b""
    while text is None or seen.count(text) < times:
        try:
            piece = os.read(descriptor, 65_536)
        except OSError:  # how a terminal says that its last user is gone
            break
        if not piece:
            break
        seen += piece
    return seen
