"""Keeps the index of a space in step with its documents: generations of vectors, the models that
fill them, and token budgets.
"""
