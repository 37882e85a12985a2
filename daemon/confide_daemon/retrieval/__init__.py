"""Retrieval: documents are cut into chunks, chunks are indexed, and the index is searched."""
