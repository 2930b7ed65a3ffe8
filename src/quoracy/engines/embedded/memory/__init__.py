"""The state in memory: keys with their versions, leases, the revision log.  No clock, no I/O."""
