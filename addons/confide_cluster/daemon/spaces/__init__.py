"""The leases of this node on spaces, the replication of spaces, and the files of the data folder
that all nodes share.
"""
