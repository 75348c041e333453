"""The same search and the same index over many machines, on Ray. Importing this package does not import Ray."""
