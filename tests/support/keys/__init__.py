"""How a test's machine keeps its key: `forms` chooses it, `keyrings` are stand-ins for the system's, `runtime` is a login's folder."""
