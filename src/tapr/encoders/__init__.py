"""Encoders: frozen towers that turn pictures and phrases into vectors of one space."""
