"""Forms of files that readers of several systems share."""
