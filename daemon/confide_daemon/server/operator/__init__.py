"""The operator's access to the running daemon: commands, metrics, upgrades and the watchdog."""
