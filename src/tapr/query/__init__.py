"""What is searched for: the reference picture, the spec in words, and how both are read."""
