"""Searching: the pipeline from a query to a ranking, and what it is made of."""
