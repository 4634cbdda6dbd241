-- Move jobs that do not run to another place: another queue, another priority, another time; null: as it is. A job that
-- is ready, scheduled or blocked is moved. With _run_at, blocked jobs and ready jobs with limits, rates or a fair key
-- are left unchanged, because they are in a line already. A unique key stays as it is. Returns the ids of
-- the moved jobs.
create or replace function stepwell.move_jobs(
  _ids uuid[],
  _queue text default null,
  _priority integer default null,
  _run_at timestamptz default null
) returns uuid[]
language plpgsql volatile security definer
as $$
declare
  _now timestamptz := stepwell.now();
  _locked uuid[];
  _moved uuid[];
  _places stepwell.place[];
  _lined uuid[];
  _due_at timestamptz;
begin
  if _queue is null and _priority is null and _run_at is null then
    raise exception using errcode = 'SW002', message = 'stepwell: move_jobs needs a queue, a priority or a time';
  end if;
  perform stepwell.check_options(
    _now, '{x}', '{"{}"}', array[_queue], array[_priority], null, array[_run_at], null, null
  );
  _locked := array(
    select l.id from (
      select j.id from stepwell.job j where j.id = any (_ids) and j.worker_id is null order by j.id for update
    ) l
  );
  with moved as (
    update stepwell.job j
    set queue = coalesce(_queue, j.queue), rank = coalesce(-_priority, j.rank),
      run_at = coalesce(_run_at, j.run_at),
      state = case
        when _run_at is null then j.state
        when _run_at > _now then 'scheduled'::stepwell.state
        else 'ready'::stepwell.state
      end,
      misfits = case when _run_at is null then j.misfits end
    where j.id = any (_locked) and j.undoing is null
      -- As text: with the states themselves the planner would take their indexes.
      and case when _run_at is null
        then j.state::text in ('ready', 'scheduled', 'blocked')
        else j.state::text = 'scheduled' or j.state::text = 'ready' and j.admission is null
      end
    returning j.id, j.state, j.queue, j.rank, j.run_at, j.fair is not null or _run_at is not null as to_line_up,
      j.admission is not null as keyed
  )
  select array_agg(m.id),
    array_agg(row(m.queue, m.rank, m.run_at)::stepwell.place) filter (where m.state = 'ready'),
    array_agg(m.id) filter (where m.state = 'ready' and m.keyed and m.to_line_up),
    min(m.run_at) filter (where m.state = 'scheduled')
  into _moved, _places, _lined, _due_at
  from moved m;
  if _lined is not null then
    perform stepwell.notify_blocked(stepwell.queue_again(_lined));
  end if;
  perform stepwell.look_at_lines(_locked);
  perform stepwell.notify_ready(
    _places, case when _run_at is not null then extract(epoch from _due_at - _now)::double precision end
  );
  return coalesce(_moved, '{}');
end
$$;
