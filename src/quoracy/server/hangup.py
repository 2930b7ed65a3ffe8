"""What SIGHUP does to settings: the log level takes effect, what else changed is named."""

from __future__ import annotations

import logging
from collections.abc import Callable

from quoracy.errors import InvalidRequest
from quoracy.server.logs import set_level
from quoracy.server.settings import LOG_LEVEL
from quoracy.server.sources import Effective

__all__ = ["read_settings_again"]

_log = logging.getLogger(__name__)


def read_settings_again(started_with: Effective, gather_again: Callable[[], Effective]) -> None:
    """Settings that cannot be used are logged and change nothing."""
    try:
        now = gather_again()
        config = now.config()
    except InvalidRequest as error:
        _log.error("the settings were not read again: %s", error)
        return
    set_level(config.log)
    _log.info("settings read again; the log level is %s", config.log.level)
    waiting = [each.name for each in started_with.differences(now) if each is not LOG_LEVEL]
    if waiting:
        _log.warning("changed, but taken up with the next start only: %s", ", ".join(waiting))
