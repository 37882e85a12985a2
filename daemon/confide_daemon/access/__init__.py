"""Access control: which keys may connect and with which rights, invites, and the audit log."""
