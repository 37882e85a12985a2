"""The add-on that learns from sessions: it reads transcripts and suggests what is worth keeping,
each with its quote.
"""
