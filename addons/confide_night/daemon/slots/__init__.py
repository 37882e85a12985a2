"""The one place in which a slot of a task changes its state, and who has it."""
