-- Fail the jobs of workers that are not registered, as rescue_jobs does for dead workers. A worker's row stays
-- while it holds a job, so there are none, unless rows were deleted by hand.
-- The function walks along the index from worker to worker, so its cost does not grow with the jobs of each. But while
-- a transaction holds an old snapshot, the index keeps an entry for every job that ever ran, and the walk passes over
-- all of them. So workers call this rarely.
create or replace function stepwell.rescue_unregistered()
returns table (job_id uuid, task text, queue text, attempt integer, message text, failed boolean)
language plpgsql volatile security definer
as $$
declare
  _unregistered uuid[];
  _holder uuid;
begin
  with recursive holder as (
    (select j.worker_id as id from stepwell.job j where j.state = 'running' order by j.worker_id limit 1)
    union all
    select (
      select j.worker_id from stepwell.job j
      where j.state = 'running' and j.worker_id > h.id
      order by j.worker_id limit 1
    )
    from holder h
    where h.id is not null
  )
  select array_agg(h.id) into _unregistered
  from holder h
  where h.id is not null and not exists (select from stepwell.worker w where w.id = h.id);
  foreach _holder in array coalesce(_unregistered, '{}') loop
    return query
      select r.job_id, r.task, r.queue, r.attempt, r.message, r.failed
      from stepwell.remove_worker(_holder, format('worker %s is not registered', _holder), '{}') r;
  end loop;
end
$$;
