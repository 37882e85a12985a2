"""Reads memories that other systems left on this machine, and markdown that people wrote, as records that become notes."""
