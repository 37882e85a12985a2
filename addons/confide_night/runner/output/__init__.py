"""What runs print, as far as it is kept: without secrets."""
