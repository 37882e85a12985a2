"""Synchronize one folder with the daemon: compare all its files (`replica`), transfer single files
(`file_transfer`), handle missing ones (`missing_files`), and read and write them with their records
in the ledger (`local_files`).
"""
