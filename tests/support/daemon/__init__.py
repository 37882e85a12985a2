"""The daemon within the test's own process, and what stands around it.

`loopback` serves on a real socket, `registries` names what its registry is tried with, `damage` and `residue` look into a
space's database, `disks` has small ones, and `openbao` is a real vault.
"""
