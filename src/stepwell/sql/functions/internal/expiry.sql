-- When something that is kept for _keep seconds expires; infinity stays infinity. Stable, as the operator that adds to
-- a timestamptz is: Postgres inlines no function that claims to be immutable and calls a stable one.
create or replace function stepwell.expiry(_now timestamptz, _keep double precision) returns timestamptz
language sql stable parallel safe
as $$
  select case when _keep < 3155760000 then _now + _keep * interval '1 second' else 'infinity' end
$$;
