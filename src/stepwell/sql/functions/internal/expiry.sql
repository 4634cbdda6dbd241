-- When something that is kept for _keep seconds expires; infinity stays infinity.
create or replace function stepwell.expiry(_now timestamptz, _keep double precision) returns timestamptz
language sql immutable parallel safe
as $$
  select case when _keep < 3155760000 then _now + _keep * interval '1 second' else 'infinity' end
$$;
