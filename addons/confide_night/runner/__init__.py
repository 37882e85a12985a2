"""The runner, `confide task runner`: executes due tasks by its own recipes, in a sandbox, within a
budget (docs/tasks.md).

It imports none of the sibling packages for the daemon and the proxy, and `confide mcp` and `confide
hook` load none of it.
"""
