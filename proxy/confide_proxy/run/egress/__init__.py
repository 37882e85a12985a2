"""Insert secrets into HTTPS requests, so that the command that makes them never has the values.
`header_secrets` says which header of which host gets which secret, `host_connection` connects to
that host, and `local_proxy` is the proxy of a `confide run`, in its own process (`proxy_process`).
The gateway for runs of tasks uses the same connections.
"""
