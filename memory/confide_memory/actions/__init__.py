"""Triggers: the files, commands and errors by which a note concerns an action of an agent."""
