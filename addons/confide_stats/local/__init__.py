"""Reads the counters of this device, for the command, the panel's page and `confide doctor`."""
