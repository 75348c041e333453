"""Small tools that every part uses: files, caches, threads, arguments, worker processes."""
