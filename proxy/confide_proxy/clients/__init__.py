"""Agents' clients: where each keeps its settings, and what of Confide is put there and taken away again."""
