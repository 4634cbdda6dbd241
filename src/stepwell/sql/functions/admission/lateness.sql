-- By how many seconds a claim of a smooth rate may be late and the next one still be on time. Also in Python:
-- stepwell.values.rate.
create or replace function stepwell.lateness(_count integer, _per double precision) returns double precision
language sql immutable parallel safe
as $$
  select case when _count = 1 then 0 else least(0.75 * _per / _count, _per / 40, 0.1) end
$$;
