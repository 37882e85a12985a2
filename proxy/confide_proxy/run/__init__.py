"""`confide run`: a command uses secrets that nobody else sees. Who may use them (`approvals`), which
they are (`secret_names`), and the command itself (`child_process`).
"""
