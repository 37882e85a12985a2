"""The worker process beside the daemon that copies and verifies snapshots, and the daemon's side of
it.
"""
