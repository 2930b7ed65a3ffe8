"""The tree of znodes: its records in the store, its replica in memory, reads and watches on it."""
