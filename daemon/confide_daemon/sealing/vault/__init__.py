"""Sealed records in a HashiCorp Vault or an OpenBao."""
