"""The panel of `confide http serve`: the memory as pages in a browser, for the person at this
device. docs/panel.md is the page for users.

The server renders each page whole, from templates that escape every value. Pages need no script:
`static/panel.js` adds a key, a reload and a copy button. The content security policy of each
response forbids inline code and requests to other hosts (`rendering`).

A browser gets a cookie for a link that `confide panel` makes, which works once, within a minute
(`links`). Browsers send a cookie to all ports of a host, so also to a server of another user of
this device. Therefore each session has an unguessable path of its own, `/panel/<place>/`, and its
cookie is limited to that path (`browser_sessions`). Queries stay out of addresses, which browsers
keep and send to their makers: the session keeps a query, and the address has its number.

The person at this device may do what the commands may, so a session has all scopes, and the notes
that it stores have class `owner` (docs/agents.md). Recovery codes, key rotation and the custody of
the database key are left to commands, since one click must not be enough for them.

A client that shows MCP apps gets one page of it beside results, without the server: `views`.
`confided` offers it to clients of its own gateway (`daemon_addon`).

Layers: views < addon, daemon_addon; links, markdown_html, drawing < browser_sessions < rendering
< page_context < daemon_status, document_links < pages < news < panel_app. A page is a function of a
`PageContext`. Those of `pages/` are listed in `panel_app.PAGES`, those of other add-ons in
`Addon.pages`.
"""
