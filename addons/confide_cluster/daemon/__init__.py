"""The add-on's part in the daemon: all of it except for the statements in `shared`."""
