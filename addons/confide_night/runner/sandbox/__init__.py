"""The sandbox of a run: separate namespaces, no network except one listener, and no process that
outlives the run.
"""
