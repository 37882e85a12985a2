"""What stays of a session (docs/learning.md): exchanges are read from the client's transcript, judged, checked, and suggested or stored.

Off until the configuration says otherwise. But for its page in the panel it must not import `mcp` or `cli`: who holds the seat gives it a
way to the daemon.
"""
