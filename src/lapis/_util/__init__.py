"""Small modules that every room uses and nobody imports from outside: files, overrides, printing, locks, metrics."""
