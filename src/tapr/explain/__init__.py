"""Explanations: which evidence was found in a picture, and where."""
