"""The daemon's part of night tasks: it stores orders, plans their slots, gives slots to runners,
and records results. It executes no tasks.

A slot is one scheduled execution of a task. `slot_states` is the only module that changes a slot's
state. `planning` creates slots and ends those that no runner starts, `claims` answers the runners'
requests, `task_actions` those of users and agents, and `task_service` combines them for an open
space.
"""
