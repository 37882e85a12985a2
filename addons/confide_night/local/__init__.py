"""The proxy's part of night tasks, without the runner: signing orders, checking them, and moving
tasks with a space.
"""
