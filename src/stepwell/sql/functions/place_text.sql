-- The payload that tells workers where to claim: rank, last rank, time in microseconds, queue. A queue too long for a
-- payload is cut, so that nobody knows it; the time is kept in the range of the type. Neither must fail anybody's commit.
create or replace function stepwell.place_text(_queue text, _rank integer, _last_rank integer, _run_at timestamptz) returns text
language sql stable
return concat_ws(
  ' ', _rank, _last_rank,
  (extract(epoch from greatest('4000-01-01 00:00:00+00 BC', least('200000-01-01 00:00:00+00', _run_at))) * 1000000)::bigint,
  left(_queue, 1500)
);
