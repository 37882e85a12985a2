"""The proxy's part of night tasks, without the runner: it signs orders, checks them, and moves
tasks with a space.
"""
