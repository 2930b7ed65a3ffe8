"""The `quorate` command: one module for each verb."""

from quorate.cli.main import main

__all__ = ["main"]
