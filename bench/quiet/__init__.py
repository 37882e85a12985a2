"""How quiet a search is when it knows nothing, on questions that its score was not fitted on (README.md says what the set is)."""
