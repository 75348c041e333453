"""The HTTP API and the page: the same search, asked over a network."""
