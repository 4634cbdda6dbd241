-- Start the callbacks of groups that have ended and that the caller has locked: each gets the summary of its group as
-- its argument, and becomes ready. A callback that was cancelled is skipped; if it is retried, it starts then. One that
-- another session has locked is tried again by a worker.
create or replace function stepwell.start_callbacks(_groups uuid[]) returns void
language plpgsql volatile
as $$
declare
  _now timestamptz := stepwell.now();
  _wanted uuid[] := array(select g.then_id from stepwell.job_group g where g.id = any (_groups));
  _locked uuid[];
  _places stepwell.place[];
  _due_in double precision;
  _keyed uuid[];
begin
  _locked := array(
    select l.id from (
      select j.id from stepwell.job j
      where j.id = any (_wanted) and j.state::text = 'blocked'
      order by j.id
      for no key update skip locked
    ) l
  );
  with started as (
    update stepwell.job_group g set then_started = true
    where g.id = any (_groups) and g.then_id = any (_locked)
    returning g.id, g.then_id, g.then_parameter, g.finished_at + g.then_delay * interval '1 second' as due_at
  ), made as (
    update stepwell.job j
    set args = case
        when s.then_parameter is null then j.args
        else json_build_object(s.then_parameter, stepwell.group_summary(s.id))
      end,
      run_at = greatest(_now, j.run_at, s.due_at),
      state = case
        when greatest(j.run_at, s.due_at) > _now then 'scheduled'::stepwell.state else 'ready'::stepwell.state
      end
    from started s
    where j.id = any (_locked) and j.id = s.then_id
    returning j.id, j.queue, j.rank, j.state, j.run_at, j.admission is not null as keyed
  )
  select array_agg(row(m.queue, m.rank, m.run_at)::stepwell.place) filter (where m.state = 'ready'),
    extract(epoch from min(m.run_at) filter (where m.state = 'scheduled') - _now),
    array_agg(m.id) filter (where m.keyed and m.state = 'ready')
  into _places, _due_in, _keyed
  from made m;
  if _keyed is not null then
    perform stepwell.notify_blocked(stepwell.queue_again(_keyed));
  end if;
  if cardinality(_locked) < cardinality(_wanted) then
    insert into stepwell.group_tally (group_id)
    select g.id from stepwell.job_group g
    where g.id = any (_groups) and not g.then_started
      -- As a scalar: with "exists" the planner might read all jobs.
      and (select true from stepwell.job j where j.id = g.then_id limit 1);
    if found then
      _due_in := least(_due_in, 0.05);
    end if;
  end if;
  perform stepwell.notify_ready(_places, _due_in);
end
$$;
