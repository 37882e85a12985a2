"""The rows of a space, one module a family of tables."""
