"""One process that tries recipes until it is told to stop: `child.py URL NAMESPACE DIRECTORY NAME
TRIAL...`.

Prints a line when it is connected; SIGTERM ends it, with exit code 0 if nothing but losses happened.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import quoracy
from tests.recipes.processes.ledger import Ledger
from tests.recipes.processes.resource import ResourceClient
from tests.recipes.processes.trials import Scene, Trial
from tests.recipes.processes.trials_of_data import TRIALS

SESSION_S = 3.0
# What may happen to anybody whose server is killed, or who is stopped for too long.
_EXPECTED = (
    quoracy.LeaseLost,
    quoracy.TimedOut,
    quoracy.Unavailable,
    quoracy.Indeterminate,
    quoracy.LeaseNotFound,
)


async def run(scene: Scene, trial: Trial, stopping: asyncio.Event) -> None:
    while not stopping.is_set():
        try:
            await trial.step(scene, trial.name)
        except _EXPECTED as error:
            scene.ledger.note(trial.name, type(error).__name__, value=str(error)[:200])
        await asyncio.sleep(0.02)


async def main(url: str, namespace: str, directory: Path, name: str, trials: list[str]) -> None:
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    ledger = Ledger(directory / "ledger", name)
    resource = await ResourceClient.connect(str(directory / "resource"))
    async with quoracy.connect(
        url, namespace=namespace, identity=name, session_ttl=SESSION_S, request_timeout=2.0
    ) as q:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        scene = Scene(q, name, ledger, resource)
        async with asyncio.TaskGroup() as group:
            for trial in trials:
                group.create_task(run(scene, TRIALS[trial], stopping), name=trial)
    ledger.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4], sys.argv[5:]))
