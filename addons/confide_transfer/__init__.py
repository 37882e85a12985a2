"""Memories of other systems become notes, a memory becomes a folder, and a space moves to another daemon."""
