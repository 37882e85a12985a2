"""Who may connect and what they may do: callers, invites, grants, and the audit log."""
