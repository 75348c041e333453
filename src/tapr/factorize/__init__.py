"""Factorizers: a reference picture and an edit in words -> a spec of Target, Add, Preserve and Remove."""
