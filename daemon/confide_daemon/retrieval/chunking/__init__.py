"""Documents cut into pieces of some sentences."""
