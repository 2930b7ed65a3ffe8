"""The composition root: settings become a configuration, the configuration a running server."""

from quorate.engines.embedded.retention import Retention
from quorate.server.config import Address, ServerConfig, TlsConfig, default_engine_url
from quorate.server.run import Started, run_server
from quorate.store.rules import Limits

__all__ = [
    "Address",
    "Limits",
    "Retention",
    "ServerConfig",
    "Started",
    "TlsConfig",
    "default_engine_url",
    "run_server",
]
