"""Where the README's numbers come from. Each module measures against a named reference in the same run and prints medians."""
