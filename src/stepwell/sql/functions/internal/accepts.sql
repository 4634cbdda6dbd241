-- Whether code that was written for this version works with the schema: no later migration requires newer code.
create or replace function stepwell.accepts(_version integer) returns boolean
language sql stable security definer
as $$
  select exists (select from stepwell.migration m where m.version = _version)
    and not exists (
      select from stepwell.migration m
      where m.version > _version and coalesce(m.compatible_from, m.version) > _version
    )
$$;
