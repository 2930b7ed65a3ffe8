"""The ZooKeeper face: the client protocol of ZooKeeper 3.8/3.9 on a store."""
