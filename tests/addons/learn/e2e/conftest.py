"""A daemon for a whole module, and for each test a machine that reaches it through a relay; a module may have its own of any of them."""

from tests.support.programs.fixtures import daemon, machine, relay

__all__ = ["daemon", "machine", "relay"]
