"""The steps of a search, which `engine` runs: read the query, rank chunks, compute scores, build
hits and explain them.
"""
