"""Small helpers for all packages: files, caches, threads, arguments, retries, worker processes."""
