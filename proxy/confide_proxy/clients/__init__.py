"""Clients of agents, such as Claude Code: where each keeps its settings, and which entries Confide
adds and removes there.
"""
