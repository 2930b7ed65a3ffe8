"""Sockets, timers and keys around the cores: what makes a machine a member on a network."""
