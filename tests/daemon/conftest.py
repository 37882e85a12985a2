"""What several tests of the daemon start from."""

from tests.support.daemon.fixtures import clock, confided, ready, registry, small_disk

__all__ = ["clock", "confided", "ready", "registry", "small_disk"]
