"""Ties of notes to the files that they speak of, and what has become of these files since."""
