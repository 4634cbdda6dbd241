-- A time as microseconds since 1970, kept in a range that fits: for calls that must never fail, whatever the time.
create or replace function stepwell.microseconds(_at timestamptz) returns bigint
language sql stable
return case
  when _at is not null then (
    extract(epoch from greatest('4000-01-01 00:00:00+00 BC'::timestamptz, least('200000-01-01 00:00:00+00'::timestamptz, _at)))
      * 1000000
  )::bigint
end;
