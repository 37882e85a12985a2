"""MCP over Streamable HTTP, in both eras: `POST /mcp`, and for the older one sessions with `GET` and `DELETE`.

The 2026-07-28 era is stateless: one request, its answer, and nothing kept. What an older client opens by `initialize` is a session here and
nowhere else: its requests go on in the later form (`exchange`), and what it listens to is one more listener
(`notifications`). Why this is not the
SDK's: docs/decisions/0036-the-framing-of-confide-serve.md.
"""
