-- The delay before the next look for events after _looks uncertain looks: 20 ms after the first, at most 30 s.
create or replace function stepwell.look_delay(_looks integer) returns interval
language sql immutable
as $$
  select least(30, 0.01 * 2 ^ least(_looks, 12)) * interval '1 second'
$$;
