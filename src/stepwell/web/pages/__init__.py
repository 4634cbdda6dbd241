"""The pages, a module each: read what `reads` returns, and show it in a template of `web/templates`.

A page decides what to show and in which words; it changes nothing, which is what `acts` are for. `routes` says at which
path a page is and which right it needs, `visit` is the request that it answers, as HTML or as JSON.
"""
