"""The spaces that are open in this daemon: the parts of one space, the pool of all of them, and the
keys of their databases.
"""
