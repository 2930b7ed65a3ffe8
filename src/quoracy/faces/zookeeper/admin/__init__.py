"""What operators ask a ZooKeeper server: four-letter words, AdminServer commands, counters."""
