-- The live runs that a tick of these schedules replaces: all that are not blocked, and at most 1,001 blocked ones of
-- each schedule, so that the caller can tell if there are too many for one transaction.
create or replace function stepwell.runs_to_replace(_schedule_ids uuid[]) returns uuid[]
language plpgsql volatile
as $$
begin
  return array(
    select r.id
    from unnest(_schedule_ids) as s (id)
    cross join lateral (
      (select j.id from stepwell.job j where (j.state = 'blocked') is false and j.schedule_id = s.id)
      union all
      (
        select j.id from stepwell.job j
        where j.state = 'blocked' and j.schedule_id = s.id
        order by j.scheduled_for, j.id
        limit 1001
      )
    ) r
  );
end
$$;
