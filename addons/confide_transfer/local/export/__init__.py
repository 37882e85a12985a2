"""A whole memory as a folder of files."""
