"""What a daemon gives of a space that leaves it, and takes of one that comes."""
