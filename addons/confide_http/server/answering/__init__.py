"""Answers HTTP requests with the tools of the client's space, or forwards them to the node that
holds the space.
"""
