"""Sessions and recipes: what programs use, on any Store."""
