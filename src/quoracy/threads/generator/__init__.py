"""Writes blocking classes for asynchronous ones: `python -m quoracy.threads.generator`."""
