"""ZooKeeper's client protocol in bytes: jute records, requests, replies, frames.  Sans-IO."""
