"""The entry point: answers `--version` itself, and leaves everything else to the verbs.

Importing click takes longer than starting Python; `--version` need not wait for it, and a server need
not keep it in memory.
"""

from __future__ import annotations

import sys

from quoracy import __version__

__all__ = ["main"]


def main() -> None:
    """The `quoracy` command."""
    if sys.argv[1:] == ["--version"]:
        from quoracy.compiled import form

        sys.stdout.write(f"quoracy {__version__} ({form()})\n")
        return
    if sys.argv[1:2] == ["serve"]:
        from quoracy.cli.serve import serve_plainly

        code = serve_plainly(sys.argv[2:])
        if code is not None:
            sys.exit(code)
    from quoracy.cli.verbs import run

    sys.exit(run())
