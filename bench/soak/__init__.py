"""A daemon under a day's work for hours: what it loses, what it keeps, and whether anything grows."""
