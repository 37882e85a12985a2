"""Answers to the hooks of coding agents: short commands that a client runs at events of its
session. They run in every turn, so these modules import next to nothing.
"""
