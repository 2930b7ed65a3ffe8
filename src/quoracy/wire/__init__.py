"""Sans-IO codecs: bytes in, values out, and back.  Nothing here opens, waits or reads a clock."""
