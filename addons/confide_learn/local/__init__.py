"""Learning from sessions (docs/learning.md): reads the transcript that the client of an agent
writes, lets judges find what is worth keeping, checks their findings, and suggests or stores them.

Off unless the configuration enables it. Except for its page in the panel it must not import `mcp`
or `cli`: the process that holds the learner's lock passes it a connection to the daemon.
"""
