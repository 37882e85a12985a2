"""Tool calls for both programs: arguments, results and the keys of `_meta`."""
