"""What both ends know of a space that moves."""
