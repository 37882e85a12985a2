"""Code that the command line interfaces of both programs share."""
