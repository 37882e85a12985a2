"""Notes: small documents with fields, each a markdown file that users can read and edit."""
