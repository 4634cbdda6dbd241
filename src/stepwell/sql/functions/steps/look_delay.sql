-- How long after a look for events that was not certain the next one follows: 20 ms after the first, at most half a minute.
create or replace function stepwell.look_delay(_looks integer) returns interval
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  select least(30, 0.01 * 2 ^ least(_looks, 12)) * interval '1 second'
$$;
