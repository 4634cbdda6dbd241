-- A time as microseconds since 1970, clamped to a range that cannot overflow, for calls that must never fail.
create or replace function stepwell.microseconds(_at timestamptz) returns bigint
language sql stable
return case
  when _at is not null then (
    1000000 * extract(
      epoch from greatest('4000-01-01 00:00:00+00 BC'::timestamptz, least('200000-01-01 00:00:00+00'::timestamptz, _at))
    )
  )::bigint
end;
