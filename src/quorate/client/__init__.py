"""The Store protocol over the network: against Quorate's own server and against a real etcd alike."""
