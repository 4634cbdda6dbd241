-- Take tokens from the bucket of a queue's rate, for jobs that were claimed, and note when it has the next one if jobs
-- may wait for that: then stepwell.promote announces the queue. The caller holds the lock of the queue.
create or replace function stepwell.use_queue_tokens(_queue text, _count integer, _now timestamptz, _more boolean)
returns void
language plpgsql volatile
as $$
declare
  _next_in double precision;
begin
  if _count > 0 then
    insert into stepwell.bucket as b (key, used, used_at)
    select stepwell.queue_key(_queue), _count, _now
    on conflict (key) do update
    set used = excluded.used + coalesce(
        (
          select stepwell.missing_tokens(b.used, b.used_at, s.burst + coalesce(s.late, 0), s.spacing, _now)
          from stepwell.queue_setting s where s.name = _queue
        ),
        0
      ),
      used_at = _now;
  end if;
  if _more then
    _next_in := (stepwell.queue_room(_queue, _now)).next_in;
    insert into stepwell.bucket as b (key, used, used_at, next_at)
    values (stepwell.queue_key(_queue), 0, _now, _now + _next_in * interval '1 second')
    -- As in stepwell.admit_lines: the clock was set back. Here, claims wait for each other, so none is ahead.
    on conflict (key) do update set next_at = excluded.next_at, used_at = least(b.used_at, excluded.used_at);
    perform stepwell.notify_ready(null, _next_in);
  end if;
end
$$;
