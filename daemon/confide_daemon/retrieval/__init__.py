"""Retrieval: divides documents into chunks, indexes the chunks, and searches the index."""
