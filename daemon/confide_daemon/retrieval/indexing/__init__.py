"""Keeps the index of a space up to date with its documents. It manages generations (one model's set
of vectors for all chunks), the models that compute them, and token budgets.
"""
