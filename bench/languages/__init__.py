"""Notes and questions in eleven languages, and how they find each other."""
