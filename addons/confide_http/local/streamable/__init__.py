"""MCP over Streamable HTTP, in both eras: `POST /mcp`, and for the older one sessions with `GET`
and `DELETE`.

The 2026-07-28 era is stateless: a request, its response, and nothing kept. The `initialize` of an
older client opens a session that exists only here: its requests are converted to the later form
(`upstream`), and its subscriptions are one more listener (`notifications`). Why this is not the
SDK's: docs/decisions/0036-the-framing-of-confide-serve.md.
"""
