"""Runs the same small tasks with a real client, with and without Confide (README.md of `bench`)."""
