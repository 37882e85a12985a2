"""Triggers: the files, commands and errors for which a note is relevant when an agent uses them or
runs into them.
"""
