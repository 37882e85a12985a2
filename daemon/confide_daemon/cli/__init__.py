"""The command line of `confided`, one module for each family of commands. Only this package prints
to the terminal.
"""
