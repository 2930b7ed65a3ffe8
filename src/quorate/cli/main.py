"""The entry point: answers `--version` itself, and leaves everything else to the verbs.

Loading click takes longer than starting Python does; whoever asks for the version need not wait for it.
"""

from __future__ import annotations

import sys

from quorate import __version__

__all__ = ["main"]


def main() -> None:
    """The `quorate` command."""
    if sys.argv[1:] == ["--version"]:
        sys.stdout.write(f"quorate {__version__}\n")
        return
    from quorate.cli.verbs import run

    sys.exit(run())
