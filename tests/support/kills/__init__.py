"""Processes that are killed, or told that the disk is full, in the middle of a write; tests start them and look at what they leave."""
