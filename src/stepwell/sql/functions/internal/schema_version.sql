-- The version of this schema, for every role that may use it.
create or replace function stepwell.schema_version() returns integer
language sql stable security definer
as $$
  select max(m.version) from stepwell.migration m
$$;
