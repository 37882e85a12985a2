"""Notes: small memories with fields, each a markdown file that people can read and edit."""
