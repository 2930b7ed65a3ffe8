"""The recipes of the client, on every kind of store."""
