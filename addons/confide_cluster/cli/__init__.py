"""The commands `confided store` and what is below it."""
