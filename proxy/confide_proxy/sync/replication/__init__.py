"""Sync of one folder with the daemon: comparison of all its files (`replica`), transfer of one
(`file_transfer`), treatment of missing ones (`missing_files`), and their texts beside the ledger
(`local_files`).
"""
