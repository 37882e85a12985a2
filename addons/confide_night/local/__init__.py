"""The machine's half but for the runner: who may order, whose orders are signed, and tasks that move with a space."""
