"""Evaluation: benchmarks, metrics, controls, tables and run files, over one bank and one set of records."""
