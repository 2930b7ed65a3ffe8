"""The log of the server, on stderr: lines for people, or JSON for a collector.

Quoracy's own loggers are all below `quoracy` and follow the configured level.  Those of libraries (such
as asyncio) write to the same stream in the same form, but only warnings and worse; at debug,
everything.

Invariants
    * One record is one line in JSON, and in text unless there is a traceback: a control character in a
      message, which may hold what a client sent, is escaped.
    * Keys, values and credentials are not logged, at any level.
"""

from __future__ import annotations

import logging
import re
import sys
from datetime import UTC, datetime
from typing import TextIO

from quoracy.server.config import LogConfig

__all__ = ["set_level", "set_up_logs"]

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_STANDARD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def set_up_logs(config: LogConfig, *, stream: TextIO | None = None) -> None:
    """Take over logging for the whole process; called again, it replaces what it did before."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_JsonLines() if config.format == "json" else _Text())
    logging.getLogger().handlers[:] = [handler]
    set_level(config)


def set_level(config: LogConfig) -> None:
    level = logging.getLevelNamesMapping()[config.level.upper()]
    logging.getLogger("quoracy").setLevel(level)
    logging.getLogger().setLevel(level if level == logging.DEBUG else max(level, logging.WARNING))


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        message = _CONTROL.sub(_escape, record.getMessage())
        line = f"{_time(record)} {record.levelname.lower():<7} {message}"
        return "\n".join((line, *self._trace(record)))

    def _trace(self, record: logging.LogRecord) -> list[str]:
        return [self.formatException(record.exc_info)] if record.exc_info else []


class _JsonLines(logging.Formatter):
    """What a call passes as `extra` becomes fields of their own."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: value for name, value in vars(record).items() if name not in _STANDARD_FIELDS}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        import json  # only for those who want it

        return json.dumps(line, default=str)


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _escape(character: re.Match[str]) -> str:
    return character[0].encode("unicode_escape").decode("ascii")
