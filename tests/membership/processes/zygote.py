"""Many agents quickly: Python and Quoracy are loaded once, each agent is a process forked from that.

    python -m tests.membership.processes.zygote < specs

Each line on stdin is one agent: the arguments of `quoracy agent`, a descriptor for its stdout, a file
for its stderr.  Its pid is printed on a line.  When stdin ends, so do all that are left.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import signal
import sys
from typing import Any, NoReturn

# What an agent loads, now rather than in each of them.
import uvloop  # noqa: F401

import quoracy.cli.membership.agent
import quoracy.cli.membership.members
import quoracy.membership.runtime.join  # noqa: F401
from quoracy.cli import verbs

_PR_SET_PDEATHSIG = 1


def main() -> None:
    gc.collect()
    gc.freeze()
    pids = []
    for line in sys.stdin:
        spec = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _be_an_agent(spec)
        os.close(spec["stdout"])
        pids.append(pid)
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()
    for pid in pids:
        # Not reaped so far, so the number is still theirs.
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _be_an_agent(spec: dict[str, Any]) -> NoReturn:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
    os.dup2(spec["stdout"], 1)
    os.dup2(os.open(spec["stderr"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.closerange(3, 4096)  # the pipes of those that come later
    sys.argv = ["quoracy", "agent", *spec["arguments"]]
    os._exit(int(verbs.run()))


if __name__ == "__main__":
    main()
