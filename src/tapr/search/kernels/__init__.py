"""Kernels: the score of a compiled query for every picture, in C++, Triton, torch and NumPy."""
