"""`python -m quoracy` is the `quoracy` command."""

from quoracy.cli import main

main()
