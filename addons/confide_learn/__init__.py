"""The add-on that learns from sessions: it reads transcripts and suggests what is worth keeping,
each suggestion with a quote from the transcript.
"""
