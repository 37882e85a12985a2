"""The add-on for night tasks: signed orders, their schedules, the runner that executes them, and
their results.
"""
