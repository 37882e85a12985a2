"""Spaces that are open: one put together of its parts, the pool of them, and who keeps their keys."""
