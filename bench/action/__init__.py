"""Measures memory at the action: failures that a note covers, calls that none concerns, and the time of a hook."""
