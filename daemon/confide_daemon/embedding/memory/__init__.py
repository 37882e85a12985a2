"""The memory that models take of this process: how it is had, for how long, and how it is given back."""
