"""The commands of `confided`, one module a family; the only place that prints."""
