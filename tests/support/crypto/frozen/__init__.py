"""Makers of the frozen vectors, a module for each file under `tests/vectors/confide`. `tests/support/crypto/freeze.py` runs them."""
