"""Whether a snapshot holds what it should: read whole, asked its canary questions, and written down."""
