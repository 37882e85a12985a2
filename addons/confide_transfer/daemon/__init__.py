"""The daemon's side of import and export."""
