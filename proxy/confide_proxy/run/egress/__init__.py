"""The way out for requests that carry a secret: which header of which host gets it (`header_secrets`),
the one connection to that host (`host_connection`), and the proxy of a `confide run` (`local_proxy`,
in a process of its own: `proxy_process`). The gateway of a task's run uses the same connection.
"""
