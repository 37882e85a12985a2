"""Devices, rosters and sealers with keys of their own, machines that seal their files, and a corpus of credentials."""
