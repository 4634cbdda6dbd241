-- Look for events again on behalf of jobs that wait. When such a job was handed back, another session was about to
-- commit an event, and the job may have missed it. The caller has locked the jobs. Events committed from now on wake
-- them anyway, so the interval between looks grows: a session may hold the event's lock for long.
create or replace function stepwell.look_again(_ids uuid[]) returns void
language plpgsql volatile
as $$
declare
  _now timestamptz := stepwell.now();
  _unsure uuid[];
begin
  _unsure := stepwell.take_events(_ids, false);
  perform stepwell.end_waits(_ids);
  perform stepwell.wake(_ids);
  update stepwell.job j
  set unsure = case when j.id in (select u.id from unnest(_unsure) as u (id)) then least(j.unsure + 1, 100) end,
    run_at = least(
      (select min(s.until) from stepwell.step s where s.job_id = j.id and s.pending and s.awaited is not null),
      case
        when j.id in (select u.id from unnest(_unsure) as u (id)) then _now + stepwell.look_delay(j.unsure + 1)
        else 'infinity'
      end
    )
  -- As text: with the state itself the planner would take the index on due jobs.
  where j.id = any (_ids) and j.state::text = 'waiting';
end
$$;
