-- The smallest version 7 uuid that can be generated _seconds after a time, to compare ids with times. Null for null.
create or replace function stepwell.first_uuid_at(_at timestamptz, _seconds integer) returns uuid
language sql immutable
as $$
  -- The uuid has 48 bits of milliseconds, so the time is clamped to the years 1970 to 10889.
  select rpad(lpad(
    to_hex((least(greatest(extract(epoch from _at) + _seconds, 0), 281474976710) * 1000)::bigint), 12, '0'
  ), 32, '0')::uuid
  where _at is not null
$$;
