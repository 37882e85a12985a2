"""The steps of a search (`engine` runs them): read the query, rank chunks, score them, build hits
and explain them.
"""
