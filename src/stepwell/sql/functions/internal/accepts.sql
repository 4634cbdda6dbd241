-- Whether code that was written for this version of the schema works with the schema as it is: no later migration says
-- that it needs newer code.
create or replace function stepwell.accepts(_version integer) returns boolean
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
  select exists (select from stepwell.migration m where m.version = _version)
    and not exists (
      select from stepwell.migration m
      where m.version > _version and coalesce(m.compatible_from, m.version) > _version
    )
$$;
