"""Watches on the state in memory, and waits for the front of a queue."""
