"""Send the session transcripts of coding agents to the daemon, if the user's configuration enables
that.

`claude_code` and `codex` parse the formats, and `transcript_files` reads the files.
`transcript_streamer` looks for new messages, and `source` sends them. These modules are imported
only when `transcripts` is set.
"""
