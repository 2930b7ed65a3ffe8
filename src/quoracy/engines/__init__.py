"""Engines: each offers one class that satisfies `quoracy.store.Store`."""
