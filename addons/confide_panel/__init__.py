"""The panel of `confide serve`: the memory as pages, for a person at this machine. docs/panel.md is for people.

A page is drawn here whole, from templates that escape everything, and needs no script: `static/panel.js` only saves a key and a reload.
Nothing is fetched from elsewhere and nothing stands inline, which the content security policy of every answer says (`rendering`).

Who is let in holds a cookie, which is given for a link that `confide panel` makes: it is good once, for a minute (`links`). A browser sends
cookies to all ports of an address, so to whatever another user of this machine serves there. Therefore every visit has a place of its own
that nobody can guess, `/panel/<place>/`, and the cookie is for that path alone (`browser_sessions`). What is
searched for stays out of addresses,
which browsers keep and send to their makers: a form leaves it with the visit, and the address has a number.

A person at this machine may do what the commands may, so a visit has all scopes, and what it stores is of class `owner` (docs/classes.md).
What must not be done by a click stays a command: recovery codes, key rotation, custody.

Floors: links, markdown_html, drawing < browser_sessions < rendering < page_context < daemon_status < pages <
news < panel_app. A page is a function of a `PageContext`, in
`pages/`, and stands in `panel_app.PAGES`; or in another add-on, in its `Addon.pages`.
"""
