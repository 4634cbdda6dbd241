"""Everything that talks to Postgres: connections, pools, queries, errors, rights and migrations.

`database` runs a query on a pooled connection and tries again where that is safe; `address` says where the database is,
`pool` and `connection` open connections, and `fetch` runs queries on one. `callers` runs them on a connection of the
user's, of any driver, in the user's transaction, and `query_plan` runs several queries as one piece of code, sync or
async. `errors` decides what an error means; `hints` says what a person can do about it. `switchover` notices a
failover.

The queries themselves are values, in `queries`. The worker's own connections, on which it claims and writes outcomes,
are in `worker`.
"""
