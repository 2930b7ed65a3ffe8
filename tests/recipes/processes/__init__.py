"""Recipes among processes that are killed, stopped and cut off; what each did is judged."""
