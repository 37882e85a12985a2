"""What both programs know of what is brought in and written out."""
