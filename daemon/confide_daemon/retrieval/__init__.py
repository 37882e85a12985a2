"""Finding: documents cut into pieces, pieces indexed, and an index searched."""
