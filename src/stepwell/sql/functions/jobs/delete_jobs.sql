-- Delete jobs that have ended: their history with its steps, their failed attempts, logs, large values and unread
-- signals. Live jobs are left unchanged: cancel them first. A unique key with a period stays taken until that is over.
-- Returns the ids of the deleted jobs.
create or replace function stepwell.delete_jobs(_ids uuid[]) returns uuid[]
language plpgsql volatile security definer
as $$
declare
  _ended uuid[];
begin
  -- Locked, so that no retry brings a job back whose failures are gone.
  _ended := array(
    select l.id from (select h.id from stepwell.history h where h.id = any (_ids) order by h.id for update) l
  );
  if cardinality(_ended) > 0 then
    delete from stepwell.event e where e.job_id = any (_ended);
    delete from stepwell.large_value v where v.job_id = any (_ended);
    delete from stepwell.failure f where f.job_id = any (_ended);
    -- The heads first: stepwell.write_logs and stepwell.prune_logs lock them before the lines.
    perform from stepwell.run_log_head h where h.job_id = any (_ended) order by h.job_id for update;
    delete from stepwell.run_log r where r.job_id = any (_ended);
    delete from stepwell.run_log_head h where h.job_id = any (_ended);
    delete from stepwell.history h where h.id = any (_ended);
  end if;
  return _ended;
end
$$;
