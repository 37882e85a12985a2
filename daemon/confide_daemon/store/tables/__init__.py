"""The tables of a space's database, one module for each group of tables."""
