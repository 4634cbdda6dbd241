-- Count runs that no worker counts: it is dead, or the row of their job is broken. Their failures are in groups
-- already. The k-th element of each array is for one run; all have this type of error and this message. It waits for no
-- lock: the counters of stepwell.stat would make a rescue wait for whoever writes them. stepwell.fold_failures adds them.
create or replace function stepwell.note_lost(
  _job_ids uuid[],
  _tasks text[],
  _queues text[],
  _type text,
  _message text
) returns void
language plpgsql volatile
as $$
begin
  insert into stepwell.failure_tally (fingerprint, at, count, task, type, message, job_id, queue, lost)
  select stepwell.failure_group_of(l.task, _type, null), stepwell.now(), 0, l.task, _type, left(_message, 500),
    l.job_ids[1], l.queue, l.lost
  from (
    select u.task, u.queue, array_agg(u.job_id) as job_ids, count(*) as lost
    from unnest(_job_ids, _tasks, _queues) as u (job_id, task, queue)
    group by u.task, u.queue
  ) l;
end
$$;
