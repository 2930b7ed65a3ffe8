"""Connections and sessions of the ZooKeeper face: sockets, limits, requests in their order."""
