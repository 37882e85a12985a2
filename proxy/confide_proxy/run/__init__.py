"""`confide run`: approvals of the use of a secret (`approvals`), references to secrets (`secret_names`),
the command that gets them (`child_process`), and the way out for those that it does not get (`egress`).
"""
