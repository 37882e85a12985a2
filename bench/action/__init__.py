"""Whether memory meets an agent at the action: failures that a note covers, calls that none concerns, and what a hook costs there."""
