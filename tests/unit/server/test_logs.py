"""What is logged, in which form, and what a client cannot do to it."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from quoracy.server.config import LogConfig, LogFormat, LogLevel
from quoracy.server.logs import set_level, set_up_logs

QUORACY = logging.getLogger("quoracy.server.test")


@pytest.fixture(autouse=True)
def put_back() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("quoracy")
    handlers, levels = root.handlers[:], (root.level, ours.level)
    yield
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    ours.setLevel(levels[1])


def logged(level: LogLevel = "info", form: LogFormat = "text") -> io.StringIO:
    stream = io.StringIO()
    set_up_logs(LogConfig(level, form), stream=stream)
    return stream


def json_line(stream: io.StringIO) -> dict[str, Any]:
    assert stream.getvalue().count("\n") == 1
    line = json.loads(stream.getvalue())
    assert isinstance(line, dict)
    return line


def test_text_line_has_time_level_and_message() -> None:
    stream = logged()
    QUORACY.warning("the disk is %s", "full")
    moment, level, message = stream.getvalue().split(maxsplit=2)
    assert (level, message) == ("warning", "the disk is full\n")
    assert datetime.fromisoformat(moment).tzinfo is not None


def test_json_line_has_the_fields_a_call_gives() -> None:
    stream = logged(form="json")
    QUORACY.info("ready", extra={"etcd": "127.0.0.1:2379", "odd": object})
    line = json_line(stream)
    assert datetime.fromisoformat(line.pop("time")).tzinfo is not None
    assert line == {
        "level": "info",
        "logger": "quoracy.server.test",
        "message": "ready",
        "etcd": "127.0.0.1:2379",
        "odd": "<class 'object'>",
    }


@pytest.mark.parametrize("form", ["text", "json"])
def test_traceback_is_logged(form: LogFormat) -> None:
    stream = logged(form=form)
    try:
        raise ValueError("broken")
    except ValueError:
        QUORACY.exception("it failed")
    if form == "json":
        assert "ValueError: broken" in json_line(stream)["exception"]
    else:
        assert stream.getvalue().endswith("ValueError: broken\n")


@pytest.mark.parametrize("form", ["text", "json"])
def test_message_cannot_forge_a_line_or_drive_a_terminal(form: LogFormat) -> None:
    stream = logged(form=form)
    QUORACY.warning("refused %s", "a\n2026-01-01 error forged\x1b[2J\r\u2028\x85")
    text = stream.getvalue()
    assert text.count("\n") == 1
    assert len(text.splitlines()) == 1
    assert "\x1b" not in text


def test_surrogates_in_a_message_do_no_harm() -> None:
    stream = logged(form="json")
    QUORACY.warning("file %s", "\udcff")
    assert json_line(stream)["message"] == "file \udcff"


@pytest.mark.parametrize(
    ("level", "heard"),
    [
        ("debug", ["quoracy.debug", "quoracy.info", "uvicorn.error.info", "asyncio.warning"]),
        ("info", ["quoracy.info", "asyncio.warning"]),
        ("warning", ["asyncio.warning"]),
        ("error", []),
    ],
)
def test_level_is_for_quoracy_and_libraries_are_heard_when_they_warn(
    level: LogLevel, heard: list[str]
) -> None:
    stream = logged(level)
    for name, number in (
        ("quoracy", logging.DEBUG),
        ("quoracy", logging.INFO),
        ("uvicorn.error", logging.INFO),
        ("asyncio", logging.WARNING),
    ):
        logging.getLogger(name).log(number, "%s.%s", name, logging.getLevelName(number).lower())
    assert [line.split()[2] for line in stream.getvalue().splitlines()] == heard


def test_level_can_change_and_setting_up_twice_does_not_double_lines() -> None:
    logged()
    stream = logged("warning")
    QUORACY.info("not heard")
    set_level(LogConfig("info"))
    QUORACY.info("heard")
    assert stream.getvalue().count("\n") == 1
