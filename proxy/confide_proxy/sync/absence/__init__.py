"""Files of a folder that are missing: what it means (`rule`), what is told of it (`notice`), and which folder it is (`folder_identity`)."""
