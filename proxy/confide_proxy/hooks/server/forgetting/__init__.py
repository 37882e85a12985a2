"""Forgetting: permanent deletion of documents or texts from the daemon, from all devices and from
backups. A signed record lists what is forgotten.
"""
