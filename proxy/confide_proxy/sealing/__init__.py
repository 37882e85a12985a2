"""Sealing: encrypt the credentials in texts before these leave this device, with keys that the
daemon never has (PROTOCOL.md 10). A placeholder in the text takes the place of each credential.
"""
