"""Engines: each offers one class that satisfies `quorate.store.Store`."""
