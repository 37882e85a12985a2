"""Limits the memory that models use: loads them on demand, and unloads them when they are idle."""
