"""The files of a project and the daemon's documents, kept the same."""
