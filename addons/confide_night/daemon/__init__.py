"""The daemon's part of night tasks: it stores orders, plans and leases their slots, and records
results. It executes none of them.

A slot is one scheduled execution of a task. `slot_states` is the only module that changes a slot's
state. `planning` creates slots and ends those that no runner starts, `claims` serves the runners'
requests, `task_actions` serves users and agents, and `task_service` combines them for an open
space.
"""
