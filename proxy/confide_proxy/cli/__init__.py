"""The commands of `confide`, one module a family; the only place that prints."""
