"""The synchronous classes.  Generated: see `quorate.sync.generate`."""
