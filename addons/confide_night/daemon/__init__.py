"""Tasks for the night as a daemon keeps them: what is ordered, when it is due, who has it, and what became of it. It runs none of them.

`ledger` is the only place in which a slot changes its state. `planning` makes slots and ends those that nobody begins, `claims` hears
runners, `desk` hears people and agents, and `service` puts them together for an open space.
"""
