"""Answers requests: with the tools of a client's space, or by forwarding to the node that holds the
space.
"""
