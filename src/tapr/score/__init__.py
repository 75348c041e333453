"""The score: the only weighting of the factors, the definition that every kernel must meet, and its breakdown."""
