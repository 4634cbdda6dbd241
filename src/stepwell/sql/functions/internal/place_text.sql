-- The payload that tells workers where to claim: rank, last rank, time in microseconds, queue. A queue that is too long for
-- a payload is cut, so that nobody knows it: a notification must not fail anybody's commit.
create or replace function stepwell.place_text(_queue text, _rank integer, _last_rank integer, _run_at timestamptz) returns text
language sql stable
return concat_ws(' ', _rank, _last_rank, stepwell.microseconds(_run_at), left(_queue, 1500));
