"""The records of access by HTTP (docs/http-server.md): tokens that the operator creates
(`server_tokens`), `applications` that may ask users for access, and the sign-ins of users
(`sign_ins`).
"""
