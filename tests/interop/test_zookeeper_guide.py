"""The examples of the README and of the guide to ZooKeeper's protocol, run against `quoracy serve`."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from quoracy.faces.zookeeper.admin.four_letter import WORDS
from quoracy.server.config import Address
from quoracy.server.sources import gather
from tests.interop.programs import QuoracyServer, run, running_quoracy
from tests.interop.zookeeper_java import CURATOR_JARS, ZOOKEEPER_JARS, java_command
from tests.test_docs import Block, blocks

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guides" / "zookeeper.md"
BLOCKS = [*blocks(GUIDE), *blocks(ROOT / "README.md")]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[QuoracyServer]:
    """A new one for each example: they show what a new one answers."""
    with running_quoracy(tmp_path, "--listen-zookeeper", "127.0.0.1:0") as running:
        yield running


def of(language: str) -> list[Block]:
    return [block for block in BLOCKS if block.language == language]


@pytest.mark.parametrize("block", of("py"), ids=lambda block: block.name)
def test_kazoo(block: Block, server: QuoracyServer) -> None:
    body = block.body.replace("127.0.0.1:2181", f"127.0.0.1:{server.zookeeper_port}")
    done = run(sys.executable, "-c", body)
    assert (done.code, done.out) == (0, block.below), done.err


@pytest.mark.parametrize("block", of("java"), ids=lambda block: block.name)
def test_curator(block: Block, server: QuoracyServer, tmp_path: Path) -> None:
    source = tmp_path / "Leading.java"
    source.write_text(block.body.replace("127.0.0.1:2181", f"127.0.0.1:{server.zookeeper_port}"))
    done = run(*java_command(str(source), jars=CURATOR_JARS))
    assert (done.code, done.out) == (0, block.below), done.err


def test_zkcli(server: QuoracyServer) -> None:
    (block,) = (block for block in of("console") if "zkCli.sh" in block.body)
    shown = re.findall(r"^\$ zkCli\.sh -server 127\.0\.0\.1:2181 (.*)\n(.*)$", block.body, re.MULTILINE)
    assert len(shown) == 3
    for command, answer in shown:
        main = ("org.apache.zookeeper.ZooKeeperMain", "-server", f"127.0.0.1:{server.zookeeper_port}")
        done = run(*java_command(*main, *shlex.split(command), jars=ZOOKEEPER_JARS))
        # Another thread of it says that it is connected, maybe in the middle of the answer.
        out = re.sub(r"\nWATCHER::\n\nWatchedEvent .*\n", "", done.out)
        assert answer in (out + done.err).splitlines(), done


def test_words_that_are_listed_are_those_there_are() -> None:
    text = GUIDE.read_text("utf-8")
    (sentence,) = re.findall(r"\(`\*` is all\):(.*?)\. They use ZooKeeper's format", text, re.DOTALL)
    named = re.findall(r"`(\w{4})`", sentence)
    assert sorted(named) == named
    assert {word.encode() for word in named} == {word for word in WORDS if word.isalpha()}


def test_digest_of_the_super_user_is_made_as_shown() -> None:
    (block,) = (block for block in of("console") if "openssl dgst" in block.body)
    command, digest, _ = block.body.removeprefix("$ ").split("\n", 2)
    assert run("sh", "-c", command).out.strip() == digest
    assert f"super:{digest}" in block.body


def test_settings_in_the_guide_can_be_used(tmp_path: Path) -> None:
    (block,) = of("toml")
    file = tmp_path / "quoracy.toml"
    file.write_text(block.body)
    config = gather({}, {}, file=file).config()
    assert config.listen_zookeeper == Address("0.0.0.0", 2181)
    assert config.zookeeper.commands_whitelist == {"srvr", "ruok", "mntr"}
