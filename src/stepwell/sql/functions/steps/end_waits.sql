-- End the sleeps whose time has come, and give up the waits. The jobs are locked by the caller.
create or replace function stepwell.end_waits(_job_ids uuid[]) returns void
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  update stepwell.step s
  set pending = false, timed_out = s.event is not null
  where s.job_id = any (_job_ids) and s.pending and s.until <= stepwell.now()
$$;
