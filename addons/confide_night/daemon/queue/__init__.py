"""Tasks, their slots, and what is known of their runners, as SQL. What may follow what is not decided here."""
