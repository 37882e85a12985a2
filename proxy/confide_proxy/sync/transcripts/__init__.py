"""Session transcripts of coding agents, sent to the daemon if the user's configuration enables it.

`claude_code` and `codex` parse the formats, `transcript_files` reads the files;
`transcript_streamer` looks for new messages, and `source` sends them. Imported only when
`transcripts` is set.
"""
