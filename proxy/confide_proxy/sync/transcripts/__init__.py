"""Session transcripts of coding agents, sent to the daemon where the user's own configuration asks for it.

`claude_code` and `codex` know the formats, `transcript_files` the files; `transcript_streamer` looks for what
is new, and `source` sends it.
Imported only when `transcripts` is set.
"""
