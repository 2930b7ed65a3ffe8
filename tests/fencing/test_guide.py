"""The examples of the guide to fencing that need a server; the others run with every document's."""

from __future__ import annotations

import subprocess
import sys

from quoracy.fencing import POSTGRES_ADMIT_NUMBERED, POSTGRES_TABLE
from tests.fencing.test_paused_holder import TRANSCRIPT
from tests.test_docs import ROOT, Block, blocks

GUIDE = ROOT / "docs" / "guides" / "fencing.md"
BLOCKS = blocks(GUIDE)


def example(word: str) -> Block:
    (block,) = (block for block in BLOCKS if block.language == "py" and word in block.body)
    return block


def output_of(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_example_with_postgresql_prints_what_is_shown(postgres: str) -> None:
    block = example("psycopg")
    assert output_of(block.body.replace("host=localhost dbname=shop", postgres)) == block.below


def test_example_with_redis_prints_what_is_shown(redis_port: int) -> None:
    block = example("RedisGate")
    assert output_of(block.body.replace("localhost:6379", f"127.0.0.1:{redis_port}")) == block.below


def test_statements_in_the_guide_are_those_of_the_package() -> None:
    assert [block.body for block in BLOCKS if block.language == "sql"] == [
        POSTGRES_TABLE,
        POSTGRES_ADMIT_NUMBERED,
    ]


def test_transcript_in_the_guide_is_what_the_example_prints() -> None:
    (shown,) = (block.body for block in BLOCKS if "paused_holder.py" in block.body)
    assert shown == "$ python examples/paused_holder.py\n" + TRANSCRIPT.format(alice=2, bob=3)
