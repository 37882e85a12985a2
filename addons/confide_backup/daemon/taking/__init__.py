"""A snapshot is taken: of spaces that are open or not, and of what other nodes hold too."""
