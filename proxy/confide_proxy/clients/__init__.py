"""Clients of agents: where each keeps its settings, and which entries Confide adds and removes
there.
"""
