"""Code that the command lines of both programs share."""
