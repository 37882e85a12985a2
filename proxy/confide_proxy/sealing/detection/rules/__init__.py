"""Detectors of credentials: one module for each way of writing them, with a `find` function."""
