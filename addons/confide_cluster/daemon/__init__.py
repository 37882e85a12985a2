"""The daemon's side of the cluster add-on: all of it except for the messages in `shared`."""
