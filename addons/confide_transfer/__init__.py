"""Imports memories of other systems, exports a space to a folder, and moves a space to another
daemon.
"""
