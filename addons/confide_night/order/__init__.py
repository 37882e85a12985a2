"""Tasks for the night, as far as machines, daemon and runners must agree on them: orders, when they are due, and what becomes of a slot."""
