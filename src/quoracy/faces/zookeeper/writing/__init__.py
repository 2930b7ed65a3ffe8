"""Writes of the ZooKeeper face: a request becomes a draft, a draft becomes a transaction."""
