-- Replace the args of ready, scheduled and blocked jobs, and of failed and cancelled jobs, for a later stepwell.retry.
-- A job that waits because its args did not fit becomes ready at once, or lines up for its limits and rates. Returns
-- the ids of the changed jobs. All others, such as running jobs and jobs that wait between steps, are left unchanged.
create or replace function stepwell.edit_args(_ids uuid[], _args text[]) returns uuid[]
language plpgsql volatile security definer
as $$
declare
  _now timestamptz := stepwell.now();
  _live uuid[];
  _ended uuid[];
  _edited uuid[];
  _places stepwell.place[];
  _keyed uuid[];
begin
  if cardinality(_ids) is distinct from cardinality(_args) then
    raise exception using errcode = 'invalid_parameter_value', message = 'stepwell: each job needs its args';
  end if;
  perform stepwell.check_options(_now, '{x}', _args, null, null, null, null, null, null);
  perform stepwell.check_values(_args);
  -- Live jobs first, then finished ones, each in the order of their ids, as in stepwell.retry.
  _live := array(select l.id from (select j.id from stepwell.job j where j.id = any (_ids) order by j.id for update) l);
  _ended := array(
    select l.id from (
      select h.id from stepwell.history h
      where h.id = any (_ids) and h.state in ('failed', 'cancelled') and h.expires_at > _now
      order by h.id
      for update
    ) l
  );
  with given as materialized (
    -- If a job is named twice, the last args count.
    select distinct on (u.id) u.id, u.args::json as args
    from unnest(_ids, _args) with ordinality as u (id, args, n)
    order by u.id, u.n desc
  ), misfit as materialized (
    select j.id from stepwell.job j
    where j.id = any (_live) and j.run_at = j.misfit_until and j.state::text = 'scheduled' and j.undoing is null
  ), waiting as (
    update stepwell.job j
    set args = g.args, misfits = null, misfit_until = null, misfit_epoch = null, misfit = null,
      state = case when m.id is not null then 'ready'::stepwell.state else j.state end,
      run_at = case when m.id is not null then _now else j.run_at end
    from given g
    left join misfit m on m.id = g.id
    where j.id = any (_live) and j.id = g.id and j.undoing is null
      -- As text: with the states themselves the planner would take their indexes.
      and j.state::text in ('ready', 'scheduled', 'blocked')
    returning j.id, case when j.state = 'ready' then row(j.queue, j.rank, j.run_at)::stepwell.place end as place,
      m.id is not null and j.admission is not null as keyed
  ), ended as (
    update stepwell.history h
    set args = g.args
    from given g
    where h.id = any (_ended) and h.id = g.id
    returning h.id
  )
  select array_agg(e.id), array_agg(e.place) filter (where e.place is not null),
    array_agg(e.id) filter (where e.keyed)
  into _edited, _places, _keyed
  from (select w.id, w.place, w.keyed from waiting w union all select d.id, null, false from ended d) e;
  if _keyed is not null then
    perform stepwell.notify_blocked(stepwell.queue_again(_keyed));
  end if;
  perform stepwell.look_at_lines(_live);
  perform stepwell.notify_ready(_places, null);
  return coalesce(_edited, '{}');
end
$$;
