"""What is answered and kept while the daemon is away: local search, the journal of writes, and their replay."""
