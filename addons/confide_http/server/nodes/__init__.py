"""Requests of HTTP for a space that another node holds."""
