"""Tasks for the night as a daemon keeps them: what is ordered, when it is due, who has it, and what became of it. It runs none of them.

`slot_states` is the only place in which a slot changes its state. `planning` makes slots and ends those that nobody begins, `claims` hears
runners, `task_actions` hears people and agents, and `task_service` puts them together for an open space.
"""
