"""Access control: callers, invites, grants and the audit log."""
