"""Documents and their revisions: writing, merging, history, projects and transcripts."""
