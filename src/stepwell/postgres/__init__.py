"""Everything that talks to Postgres: connections, pools, queries, migrations, errors."""
