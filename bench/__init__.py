"""Benchmarks: what Quoracy costs, side by side with the plainest program that does the same work."""
