"""One package for each protocol; a face knows the store and nothing of what keeps it."""
