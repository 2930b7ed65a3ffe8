"""Watches on the state in memory: who is notified of which revision."""
