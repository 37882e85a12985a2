"""Where a run lives: namespaces of its own, no network but one listener that was handed out, and an end that nothing outlives."""
