"""The composition root: settings become a configuration, and that becomes a running server."""
