"""Definitions of import and export that the device and the daemon share."""
