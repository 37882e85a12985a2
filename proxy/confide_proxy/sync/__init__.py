"""Sync between the files of a project and the documents of the daemon."""
