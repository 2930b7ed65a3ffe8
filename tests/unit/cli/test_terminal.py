"""What people see: the verbs on a pseudo-terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import subprocess
import termios

from tests.unit.cli.asking import Ask
from tests.unit.cli.conftest import QUORACY

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """A terminal of 100 columns with `quoracy` on it, as a shell would start it."""

    def __init__(self, *arguments: str) -> None:
        self._ours, theirs = pty.openpty()
        environment = os.environ | {"COLUMNS": "100", "TERM": "xterm-256color"}
        environment.pop("NO_COLOR", None)
        self.process = subprocess.Popen(
            [*QUORACY, *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment,
            start_new_session=True,
            # Only the child itself can make the terminal its own; no threads run in these tests.
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509
        )
        os.close(theirs)
        self.written = ""

    def read_until(self, text: str) -> None:
        while text not in self.written:
            assert self._read(), self.written

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def read_all(self) -> str:
        while self._read():
            pass
        self.process.wait(timeout=60)
        os.close(self._ours)
        return self.written

    def _read(self) -> bool:
        try:
            read = os.read(self._ours, 65_536)
        except OSError:  # how Linux says that the other end is closed
            return False
        self.written += read.decode().replace("\r\n", "\n")
        return bool(read)


def on_terminal(*arguments: str) -> str:
    return Terminal(*arguments).read_all()


def plain(text: str) -> str:
    return "\n".join(line.rstrip() for line in ESCAPES.sub("", text).splitlines())


def test_many_keys_are_a_coloured_table(ask: Ask) -> None:
    ask("put", "a/1", "[bold]not markup[/]")
    ask("put", "a/22", "-", stdin=b"x\x1b[2Jy")
    shown = on_terminal("get", "a/", "--prefix")
    assert plain(shown) == "KEY   VALUE\na/1   [bold]not markup[/]\na/22  x\\x1b[2Jy"
    assert "\x1b[36m" in shown


def test_one_value_is_readable_and_harmless(ask: Ask) -> None:
    ask("put", "k", "-", stdin=b"two\nlines \\ \x1b[2J\xff")
    assert on_terminal("get", "k") == "two\nlines \\ \\x1b[2J\\xff\n"


def test_ls_draws_a_tree(ask: Ask) -> None:
    for key in ("a/b/1", "a/b/2", "c"):
        ask("put", key, "v")
    assert plain(on_terminal("ls")) == "\n".join(
        (
            "/  3 keys @4",
            "├── a/  2 keys @3",
            "│   └── b/  2 keys @3",
            "│       ├── 1  @2",
            "│       └── 2  @3",
            "└── c  @4",
        )
    )


def test_watch_shows_time_old_and_new(ask: Ask) -> None:
    for value in ("green", "blue"):
        ask("put", "colour", value)
    ask("del", "colour")
    shown = on_terminal("watch", "colour", "--after", "1", "--count", "3", "--prev")
    lines = plain(shown).splitlines()
    assert [re.sub(r"^\d\d:\d\d:\d\d  ", "", line) for line in lines] == [
        "new  colour  green  @2",
        "put  colour  green → blue  @3",
        "del  colour  blue  @4",
    ]
    assert "\x1b[" in shown


def test_history_says_what_was_compacted(ask: Ask) -> None:
    for value in ("one", "two"):
        ask("put", "k", value)
    ask("compact", "3")
    assert plain(on_terminal("history", "k")).splitlines()[-1] == (
        "history before revision 3 was compacted"
    )


def test_command_under_a_lock_can_read_the_terminal(ask: Ask) -> None:
    # From a background process group it would be stopped for trying.
    terminal = Terminal(
        "lock", "l", "--", "sh", "-c", "echo ready; read line < /dev/tty; echo got $line"
    )
    terminal.read_until("ready\n")
    terminal.type("hello\n")
    assert terminal.read_all().splitlines()[-1] == "got hello"
    assert terminal.process.returncode == 0


def test_ctrl_c_reaches_the_command_once_and_the_lock_is_released(ask: Ask) -> None:
    script = (
        "n=0; trap 'n=$((n+1))' INT; echo ready; sleep 5 & wait; sleep 0.2; kill $!; echo n=$n; exit 9"
    )
    terminal = Terminal("lock", "l", "--", "sh", "-c", script)
    terminal.read_until("ready\n")
    terminal.type("\x03")
    assert "n=1" in terminal.read_all()
    assert terminal.process.returncode == 9
    assert ask("get", "l/", "--prefix").lines == []


def test_ctrl_c_releases_a_lock_that_is_held_without_a_command(ask: Ask) -> None:
    terminal = Terminal("lock", "l")
    terminal.read_until("held until Ctrl-C")
    terminal.type("\x03")
    terminal.read_all()
    assert terminal.process.returncode == 130
    assert ask("get", "l/", "--prefix").lines == []


def test_ctrl_z_does_not_stop_a_holder(ask: Ask) -> None:
    terminal = Terminal("lock", "l", "--", "sh", "-c", "echo ready; read line; echo got $line")
    terminal.read_until("ready\n")
    terminal.type("\x1agoing on\n")
    assert terminal.read_all().splitlines()[-1] == "got going on"
