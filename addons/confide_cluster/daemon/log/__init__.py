"""The log of a space in PostgreSQL: what is sealed, sent, applied again and kept as snapshots. Loaded where `[store] url` is set."""
