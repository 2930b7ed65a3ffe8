"""Hosts as network namespaces on one switch, and what a test does to the wires between them.

Every host is a namespace with one interface and one address; the switch is a bridge in a namespace of
its own.  The surroundings get nothing: no interface, no route, no rule.  Addresses are the same in
every run, which is no conflict, because no run sees another's switch.

Invariants
    * Whatever is made here has the name of the process that made it in its own, and is gone when the
      block is left.  What an earlier process left behind when it was killed goes with the next run.
    * The rules of a host are replaced as a whole (`nft -f`): there is no moment with half of them.
    * A packet is dropped without a word: a cut wire answers nothing.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Generic, Self, TypeVar

__all__ = ["Network", "has_netem", "why_no_network"]

T = TypeVar("T")

_NEW_NET = 0x40000000  # CLONE_NEWNET
_NAMESPACES = Path("/run/netns")
_OURS = re.compile(r"quoracy-(\d+)-\d+-\w+")
_RUNS = itertools.count()
_COMMAND_S_MAX = 20.0


class Network:
    """Some hosts, by name.  Enter it to make them; leave it to remove them and whatever runs there."""

    def __init__(self, names: Sequence[str]) -> None:
        self._run = f"quoracy-{os.getpid()}-{next(_RUNS)}"
        self.names = tuple(names)
        self.addresses = {name: f"10.77.0.{number + 1}" for number, name in enumerate(names)}

    def __enter__(self) -> Self:
        _remove_leftovers()
        try:
            self._make()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._remove()

    def command(self, host: str, command: Sequence[str]) -> list[str]:
        """The same command on that host; it is the process itself, not one that has it as a child."""
        return ["nsenter", f"--net={_NAMESPACES / self._space(host)}", *command]

    def call(self, host: str, function: Callable[[], T]) -> T:
        """Call it on that host, in a thread whose sockets are there."""
        thread = _OnHost(_NAMESPACES / self._space(host), function)
        thread.start()
        thread.join()
        return thread.outcome()

    # -- the wires ------------------------------------------------------------------------------

    def set_rules(self, rules: Mapping[str, Iterable[str]]) -> None:
        """What each host drops: "input ip saddr 10.77.0.2", "output tcp dport 2379".

        Hosts that are not named drop nothing.
        """
        for host in self.names:
            # Declared, then flushed: that works whether it was there before or not.
            lines = ["table inet faults {", "chain input { type filter hook input priority 0; }"]
            lines += [
                "chain output { type filter hook output priority 0; }",
                "}",
                "flush table inet faults",
            ]
            for rule in rules.get(host, ()):
                chain, _, match = rule.partition(" ")
                lines.append(f"add rule inet faults {chain} {match} drop")
            self._on(host, ["nft", "-f", "-"], "\n".join(lines) + "\n")

    def set_shape(self, host: str, *qdisc: str) -> None:
        """How what the host sends is queued: ("netem", "delay", "75ms"), or nothing for at once."""
        with suppress(subprocess.CalledProcessError):  # there is none to remove
            self._on(host, ["tc", "qdisc", "del", "dev", "wire", "root"])
        if qdisc:
            self._on(host, ["tc", "qdisc", "add", "dev", "wire", "root", *qdisc])

    # -- making and removing --------------------------------------------------------------------

    def _make(self) -> None:
        switch = self._space("switch")
        _run(["ip", "netns", "add", switch])
        for name in self.names:
            _run(["ip", "netns", "add", self._space(name)])
        lines = ["link add name switch type bridge", "link set switch up"]
        for number, name in enumerate(self.names):
            lines += [
                f"link add port{number} type veth peer name wire netns {self._space(name)}",
                f"link set port{number} master switch",
                f"link set port{number} up",
            ]
        _run(["ip", "-netns", switch, "-batch", "-"], "\n".join(lines))
        for name in self.names:
            lines = [
                "link set lo up",
                f"address add {self.addresses[name]}/24 dev wire",
                "link set wire up",
            ]
            _run(["ip", "-netns", self._space(name), "-batch", "-"], "\n".join(lines))

    def _remove(self) -> None:
        for name in (*self.names, "switch"):
            _remove_space(self._space(name))

    def _on(self, host: str, command: Sequence[str], given: str = "") -> None:
        _run(self.command(host, command), given)

    def _space(self, name: str) -> str:
        return f"{self._run}-{name}"


class _OnHost(threading.Thread, Generic[T]):
    """A thread in another network namespace; which one a thread is in is its own affair."""

    def __init__(self, space: Path, function: Callable[[], T]) -> None:
        super().__init__(name=f"on {space.name}", daemon=True)
        self._space, self._function = space, function
        self._results: list[T] = []
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            _enter(self._space)
            self._results.append(self._function())
        except BaseException as error:  # noqa: BLE001  whoever waits for the thread gets it
            self._error = error

    def outcome(self) -> T:
        if self._error is not None:
            raise self._error
        return self._results[0]


def why_no_network() -> str | None:
    """What is missing for hosts of our own; None if nothing is."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return "network namespaces need root"
    missing = [tool for tool in ("ip", "nsenter", "nft", "tc") if shutil.which(tool) is None]
    if missing:
        return f"{', '.join(missing)}: not installed (Debian: apt-get install iproute2 nftables)"
    try:
        with Network(["a"]) as network:
            network.set_rules({"a": ["input ip saddr 10.77.0.9"]})
    except subprocess.CalledProcessError as error:
        return f"network namespaces cannot be made here: {error.stderr.strip()}"
    return None


def has_netem() -> bool:
    """Whether this kernel can delay packets; some are built without that."""
    with Network(["a"]) as network:
        try:
            network.set_shape("a", "netem", "delay", "1ms")
        except subprocess.CalledProcessError:
            return False
    return True


def _enter(space: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open(space, os.O_RDONLY)
    try:
        if libc.setns(descriptor, _NEW_NET) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(space))
    finally:
        os.close(descriptor)


def _run(command: Sequence[str], given: str = "") -> str:
    done = subprocess.run(
        command, input=given, check=True, capture_output=True, text=True, timeout=_COMMAND_S_MAX
    )
    return done.stdout


def _remove_leftovers() -> None:
    """Of runs whose process is gone."""
    if not _NAMESPACES.exists():
        return
    for entry in _NAMESPACES.iterdir():
        ours = _OURS.fullmatch(entry.name)
        if ours is not None and not Path("/proc", ours[1]).exists():
            _remove_space(entry.name)


def _remove_space(name: str) -> None:
    try:
        for pid in _run(["ip", "netns", "pids", name]).split():
            if int(pid) != os.getpid():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
        _run(["ip", "netns", "del", name])
    except subprocess.CalledProcessError:
        if (_NAMESPACES / name).exists():  # it was never made, or another run has removed it
            raise
