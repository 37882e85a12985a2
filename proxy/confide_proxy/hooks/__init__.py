"""Hooks: events that clients report about their sessions, and immediate answers to them. They run
in every turn, so they load next to nothing.
"""
