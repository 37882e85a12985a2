"""Takes snapshots of a daemon's data folder while it serves; verifies, restores and removes them."""
