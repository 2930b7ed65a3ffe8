"""Java programs of ZooKeeper's world: what runs them, and where their parts are.

To start soon matters more here than to be fast after a minute, so the machine compiles little.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.zookeeper_server import zookeeper_missing

__all__ = ["CURATOR_JARS", "ZOOKEEPER_JARS", "java_command", "javac"]

_JARS = Path("/usr/share/java")
_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xmx256m")
_QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"

ZOOKEEPER_JARS = ("zookeeper.jar", "slf4j-simple.jar")
CURATOR_JARS = ("curator-recipes.jar", *ZOOKEEPER_JARS)


def java_command(
    main: str, *arguments: str, jars: tuple[str, ...], classes: Path | None = None
) -> list[str]:
    """The command that runs a class; skips the test if Java or a jar is missing."""
    if missing := zookeeper_missing():
        pytest.skip(missing)
    return ["java", *_OPTIONS, _QUIET, "-cp", _class_path(jars, classes), main, *arguments]


def javac(sources: Path, classes: Path, *, jars: tuple[str, ...]) -> list[str]:
    """The command that compiles what is in a directory; skips the test if there is no compiler."""
    program = shutil.which("javac")
    if program is None:
        pytest.skip("there is no javac; on Debian: apt-get install default-jdk-headless")
    return [
        program,
        "-nowarn",
        "-proc:none",
        "-d",
        str(classes),
        "-cp",
        _class_path(jars, None),
        *map(str, sorted(sources.glob("*.java"))),
    ]


def _class_path(jars: tuple[str, ...], classes: Path | None) -> str:
    for jar in jars:
        if not (_JARS / jar).is_file():
            package = "libcurator-recipes-java" if jar.startswith("curator") else "zookeeper"
            pytest.skip(f"{_JARS / jar} is not there; on Debian: apt-get install {package}")
    found = [str(_JARS / jar) for jar in jars]
    return ":".join([*found, *([str(classes)] if classes is not None else [])])
