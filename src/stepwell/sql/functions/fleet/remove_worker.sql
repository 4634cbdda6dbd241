-- Give back what a dead worker holds, and take it off the registry. Returns those jobs, as fail_held does.
-- Nothing is waited for, but a schedule's row for a moment (admit). A claim or a commit that is still under way may belong to a worker that was stopped or cut off,
-- and then it lasts for as long as the server believes in the connection. What is locked so stays, and the worker's row
-- with it; the next rescue looks again.
create or replace function stepwell.remove_worker(_worker_id uuid, _message text, _tasks jsonb) returns table (
  job_id uuid,
  task text,
  message text,
  failed boolean
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  _idle boolean;
begin
  -- With the row no claim is under way, so the statements that follow see all that it holds.
  perform from stepwell.worker w where w.id = _worker_id for update skip locked;
  _idle := found;
  return query select f.job_id, f.task, f.message, f.failed from stepwell.fail_held(_worker_id, _message, _tasks) f;
  if _idle then
    delete from stepwell.worker w
    where w.id = _worker_id
      and not exists (select from stepwell.job j where j.worker_id = _worker_id and j.state = 'running');
    delete from stepwell.control c where c.scope = 'worker' and c.name = _worker_id::text;
    delete from stepwell.leader l where l.worker_id = _worker_id;
  end if;
end
$$;
