"""The add-on for memory over HTTP: `confide http serve` on a device, and `[gateway]` of daemon.toml
on a server.
"""
