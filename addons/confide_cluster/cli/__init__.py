"""The command `confided store` and its options."""
