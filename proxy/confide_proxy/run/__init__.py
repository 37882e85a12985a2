"""`confide run`: approvals of the use of a secret (`approvals`), references to secrets (`secret_names`),
and the command that gets them (`child_process`).
"""
