"""Group commit: which writes go to disk together, and when."""
