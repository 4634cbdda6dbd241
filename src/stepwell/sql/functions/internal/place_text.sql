-- The payload of a notification: rank, last rank, time in microseconds, queue. A queue name that is too long for a
-- payload is cut, and then matches no queue: a notification must not make a commit fail.
create or replace function stepwell.place_text(_queue text, _rank integer, _last_rank integer, _run_at timestamptz)
returns text
language sql stable
return concat_ws(' ', _rank, _last_rank, stepwell.microseconds(_run_at), left(_queue, 1500));
