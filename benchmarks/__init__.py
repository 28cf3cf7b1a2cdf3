"""Benchmarks: each module has a `main()` that prints a table; `python -m benchmarks [name ...]` runs them."""
