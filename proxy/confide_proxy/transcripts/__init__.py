"""Session transcripts of coding agents, sent to the daemon where the user's own configuration asks for it.

`parsers` knows the formats, `reading` the files, `progress` how far each one is, `stream` sends what is new. Imported only when
`transcripts` is set.
"""
