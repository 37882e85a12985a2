"""The command line of `confided`, one module per family of commands. Only this package prints."""
