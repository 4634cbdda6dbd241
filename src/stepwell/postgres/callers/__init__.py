"""Run queries on a connection of the caller's, in its transaction: they take effect if and only if it commits.

`fetch` is the way in. `dispatch` finds the driver of an object by the package of its class, so no driver is imported
that the user does not have. There is one module for each driver: it says how a query is run, which connections cannot
be used, and how an error reads to psycopg, whose errors the rest of Stepwell understands. `caller` says what such a
module implements. `same_database` refuses a connection to another database than the app's. `parameters` and `failure`
are for drivers other than psycopg.

Stepwell's own connections are not here: they are psycopg's, always.
"""
