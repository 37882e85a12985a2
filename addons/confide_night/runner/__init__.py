"""`confide task runner`: does what was ordered for the night, by recipes of its own, in a sandbox, within a budget (docs/tasks.md).

Of the rooms beside it nothing is known here, and nothing of it is loaded by `confide mcp` or `confide hook`.
"""
