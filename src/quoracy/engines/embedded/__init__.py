"""The embedded engine: one process, one SQLite file (or none), no set-up."""
