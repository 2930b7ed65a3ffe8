"""The composition root: settings become a configuration, the configuration a running server."""

from quoracy.engines.embedded.retention import Retention
from quoracy.server.config import Address, ServerConfig, TlsConfig, default_engine_url
from quoracy.server.run import Started, run_server
from quoracy.store.rules import Limits

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
