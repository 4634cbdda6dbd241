-- Set how many jobs of a queue start in a time, over all workers: at most _count in _per seconds, with bursts of up to
-- _burst, or else of _count. Nulls remove the rate. It takes effect at once, also for jobs that wait already.
create or replace function stepwell.set_queue_rate(
  _queue text,
  _count integer,
  _per double precision,
  _burst integer default null
) returns void
language plpgsql volatile security definer
as $$
begin
  perform stepwell.check_queue(_queue);
  perform stepwell.check_rate('queue ' || _queue, _count, _per, _burst);
  if _count is null then
    update stepwell.queue_setting s set spacing = null, burst = null, set_at = stepwell.now() where s.name = _queue;
  else
    insert into stepwell.queue_setting as s (name, spacing, burst, set_at)
    values (_queue, _per / _count, coalesce(_burst, _count), stepwell.now())
    on conflict (name) do update set spacing = excluded.spacing, burst = excluded.burst, set_at = excluded.set_at;
  end if;
  delete from stepwell.queue_setting s where s.name = _queue and s.most is null and s.spacing is null;
  perform stepwell.notify_queues(array[_queue]);
end
$$;
