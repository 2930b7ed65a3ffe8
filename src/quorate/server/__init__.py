"""The composition root: a configuration becomes an engine, the engine gets its faces, and both run."""

from quorate.engines.embedded.retention import Retention
from quorate.server.config import Address, ServerConfig, default_engine_url
from quorate.server.run import Started, run_server
from quorate.store.rules import Limits

__all__ = [
    "Address",
    "Limits",
    "Retention",
    "ServerConfig",
    "Started",
    "default_engine_url",
    "run_server",
]
