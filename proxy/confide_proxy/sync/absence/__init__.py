"""Missing memory files: decide if they were deleted or lost (`rule`, `checkout`), report it
(`notice`), and identify the folder that they were in (`folder_identity`).
"""
