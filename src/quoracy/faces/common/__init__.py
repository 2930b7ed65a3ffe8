"""What several faces share: keeping web pages away from a server that trusts whoever reaches it."""
