-- Whether the schedule has a live run, blocked or not. As a function, so that no plan reads the runs of all schedules.
create or replace function stepwell.has_live_run(_schedule_id uuid) returns boolean
language plpgsql volatile
as $$
begin
  return exists (
    select from stepwell.job j where (j.state = 'blocked') = any ('{false,true}') and j.schedule_id = _schedule_id
  );
end
$$;
