"""What the embedded engine keeps on disk: the commit log, the SQLite journal, their threads."""
