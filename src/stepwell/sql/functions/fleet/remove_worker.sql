-- Fail the jobs of a dead worker (fail_held) and delete its registration. The only lock that the function waits for is
-- that on the row of a schedule, and briefly (admit). A claim or commit of the dead worker may still be in progress, as
-- long as the server keeps its connection. The next rescue then fails the jobs locked by it, and deletes the row.
create or replace function stepwell.remove_worker(_worker_id uuid, _message text, _tasks jsonb)
returns table (job_id uuid, task text, queue text, attempt integer, message text, failed boolean)
language plpgsql volatile
as $$
declare
  _idle boolean;
begin
  -- With this lock no claim is in progress, so the following statements see every job that the worker holds.
  perform from stepwell.worker w where w.id = _worker_id for update skip locked;
  _idle := found;
  return query
    select f.job_id, f.task, f.queue, f.attempt, f.message, f.failed
    from stepwell.fail_held(_worker_id, _message, _tasks) f;
  if _idle then
    delete from stepwell.worker w
    where w.id = _worker_id
      and not exists (select from stepwell.job j where j.worker_id = _worker_id and j.state = 'running');
    delete from stepwell.control c where c.scope = 'worker' and c.name = _worker_id::text;
    delete from stepwell.leader l where l.worker_id = _worker_id;
  end if;
end
$$;
