"""What whoever runs the daemon may ask of it while it runs, and what it tells of itself unasked."""
