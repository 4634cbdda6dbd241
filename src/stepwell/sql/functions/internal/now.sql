-- The clock of the schema, for every role. A row in stepwell.clock stops it, for tests.
create or replace function stepwell.now() returns timestamptz
language sql volatile security definer
as $$
  select coalesce((select c.at from stepwell.clock c limit 1), clock_timestamp())
$$;
