-- Look up the waits of jobs for which an event may have been on its way when they were given back. The jobs wait, and are
-- locked by the caller. An event that is committed later wakes them in any case; so each look is further away than
-- the one before, should somebody keep the event's lock.
create or replace function stepwell.look_again(_ids uuid[]) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
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
      case when j.id in (select u.id from unnest(_unsure) as u (id)) then _now + stepwell.look_delay(j.unsure + 1) else 'infinity' end
    )
  -- As text, because the state itself would tempt the planner to the index on all that is due.
  where j.id = any (_ids) and j.state::text = 'waiting';
end
$$;
