"""Recipes: what coordination is made of, each in a file of its own, on what `client.context` offers."""
