"""The score: its factors as data, the only weighting of them, and the definition that every kernel must meet."""
