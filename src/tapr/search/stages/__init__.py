"""The stages of a search: ways to bound scores, and to compute them. search/prune.py has their protocol."""
