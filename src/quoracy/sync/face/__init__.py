"""The synchronous classes.  Generated: see `quoracy.sync.generate`."""
