-- Workers of schema 6 call this. It does the same as rescue_jobs, and returns only the ids of the jobs.
create or replace function stepwell.rescue(_patience double precision default 1, _limit integer default 20)
returns uuid[]
language plpgsql volatile security definer
as $$
begin
  return array(select r.job_id from stepwell.rescue_jobs(_patience, _limit) r);
end
$$;
