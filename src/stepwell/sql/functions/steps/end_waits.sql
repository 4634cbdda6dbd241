-- End the sleeps and time out the waits whose time has come. The caller has locked the jobs.
create or replace function stepwell.end_waits(_job_ids uuid[]) returns void
language sql volatile
as $$
  update stepwell.step s
  set pending = false, timed_out = s.event is not null
  where s.job_id = any (_job_ids) and s.pending and s.until <= stepwell.now()
$$;
