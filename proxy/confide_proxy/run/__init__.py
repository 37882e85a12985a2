"""`confide run`: run a command that uses secrets without showing their values. `approvals` decides
if the command may use a secret, `secret_names` finds the secret, `child_process` runs the command,
and `egress` inserts secrets into HTTPS requests so that the command itself does not get them.
"""
