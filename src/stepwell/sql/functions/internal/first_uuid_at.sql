-- The least version 7 uuid that can be made _seconds after a time, so that ids compare with times. Null: there is no time.
create or replace function stepwell.first_uuid_at(_at timestamptz, _seconds integer) returns uuid
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  -- 48 bits of milliseconds: times before 1970 and after 10889 are taken for these.
  select rpad(
    lpad(to_hex((least(greatest(extract(epoch from _at) + _seconds, 0), 281474976710) * 1000)::bigint), 12, '0'), 32, '0'
  )::uuid
  where _at is not null
$$;
