-- The one clock. Tests may stop it by a row in stepwell.clock.
create or replace function stepwell.now() returns timestamptz
language sql volatile parallel safe
as $$
  select coalesce((select c.at from stepwell.clock c limit 1), clock_timestamp())
$$;
