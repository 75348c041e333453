"""Captions: a global vector of a picture in, a sentence out."""
