"""Notes: small documents with fields, each stored as a markdown file that users can read and edit."""
