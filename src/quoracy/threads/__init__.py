"""Threads that use what lives on an event loop: the loop, the calls, and proxies of its objects."""
