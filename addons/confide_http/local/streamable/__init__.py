"""MCP over Streamable HTTP for two generations of the protocol: `POST /mcp` for both, and sessions
with `GET` and `DELETE` for the versions before 2026-07-28.

Version 2026-07-28 is stateless, so nothing is kept between requests. An older client's `initialize`
opens a session that exists only in this gateway: its requests are converted to the newer form
(`upstream`), and its subscriptions become one more listener (`notifications`). Why this is not the
SDK's: docs/decisions/0036-the-framing-of-confide-serve.md.
"""
