"""Embedding models: a provider's server with its faults, and models whose vectors a test can tell."""
