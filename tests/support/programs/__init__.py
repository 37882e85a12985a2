"""The real programs as processes of their own, and whoever speaks to them.

`processes` has a machine and a daemon, `confided` the operator's program on an empty home, `pair` two machines of one space; `wire` and
`mcp_session` are an agent's ends of `confide mcp`, `watch` is `confide sync --watch`. `forked` starts them all from a
process that has loaded what they import (`zygote`), and `wall_clock` gives them a time of day that jumps.
"""
