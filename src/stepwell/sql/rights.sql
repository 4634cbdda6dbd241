-- Runs after functions and views. A function is for those it is granted to; docs/operations.md shows the grants for a
-- role that only enqueues and for one that runs workers.
revoke all on all functions in schema stepwell from public;
grant execute on function stepwell.schema_version(), stepwell.now(), stepwell.unfold(json) to public;
