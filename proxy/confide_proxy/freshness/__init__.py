"""Ties between notes and the code or files that they are about, by which outdated notes are found."""
