"""Learning from sessions (docs/learning.md): reads exchanges from the client's transcript, has them
judged and checked, and suggests or stores the findings.

Off unless the configuration enables it. Except for its page in the panel it must not import `mcp`
or `cli`: the process that holds the learner's lock passes it a connection to the daemon.
"""
