"""The daemon's side of a move, at the source and at the target."""
