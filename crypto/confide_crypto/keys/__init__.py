"""The keys of people's machines and of daemons: their text forms, their files, and a passphrase around them."""
