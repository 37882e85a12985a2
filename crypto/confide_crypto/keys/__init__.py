"""The keys of devices and daemons: text forms, files, and encryption under a passphrase."""
