"""Builds the files of a release, the same bytes each time: release/README.md."""
