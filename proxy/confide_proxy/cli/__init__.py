"""The command line of `confide`, one module per family of commands. Only this package prints."""
