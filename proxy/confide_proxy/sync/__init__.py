"""Synchronize the files of a project with the daemon's documents."""
