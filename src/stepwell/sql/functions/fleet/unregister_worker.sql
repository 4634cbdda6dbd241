-- Remove a worker that stops. Jobs that it still holds are failed, as those of a dead worker.
create or replace function stepwell.unregister_worker(_worker_id uuid) returns uuid[]
language plpgsql volatile security definer
as $$
declare
  _tasks jsonb;
begin
  update stepwell.worker w set lease_until = 'epoch' where w.id = _worker_id returning w.tasks into _tasks;
  return array(
    select r.job_id
    from stepwell.remove_worker(
      _worker_id, format('worker %s stopped while it held this job', _worker_id), coalesce(_tasks, '{}')
    ) r
  );
end
$$;
