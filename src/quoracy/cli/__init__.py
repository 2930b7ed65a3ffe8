"""The `quoracy` command: one module for each verb."""

from quoracy.cli.main import main

__all__ = ["main"]
