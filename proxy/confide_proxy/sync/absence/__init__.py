"""Missing memory files: decide if a user deleted them or if they were lost (`rule`, `checkout`),
notify the user (`notice`), and recognize if another folder has taken the path (`folder_identity`).
"""
