"""What stays of sessions: transcripts are read, and what is worth keeping is proposed with its quote."""
