-- Put jobs in line that have become ready in this transaction and have an admission: block those that need a permit
-- for a limit or rate, and give those with a fair key their turn. A job that holds the permits of its limits needs no
-- new ones, nor does one whose tokens are still reserved. Returns the keys whose lines have grown. The caller has
-- locked the jobs. Workers are notified of the turns: a turn may be long before now, where no worker looks that was
-- told only when the job became ready.
create or replace function stepwell.queue_again(_ids uuid[]) returns text[]
language plpgsql volatile
as $$
declare
  _now timestamptz := stepwell.now();
  _found record;
  _keys text[];
  _places stepwell.place[];
begin
  select array_agg(j.id) as ids,
    array_agg(
      -- As a scalar: with a join the planner might read all permits.
      coalesce(
        (
          select (j.admission::jsonb - array_agg(case when p.rate then 'rates' else 'limits' end))::json
          from stepwell.permit p where p.job_id = j.id
        ),
        j.admission
      )
    ) as admissions,
    array_agg(j.queue) as queues, array_agg(j.rank::integer) as ranks, array_agg(true) as due
  into _found
  from stepwell.job j
  where j.id = any (_ids) and j.admission is not null and j.state::text = 'ready';
  if _found.ids is null then
    return '{}';
  end if;
  with lined as (
    select u.id, u.blocked_by, u.turn
    from unnest(
      _found.ids, stepwell.line_up(_now, _found.ids, _found.admissions, _found.queues, _found.ranks, _found.due)
    ) as u (id, admission, blocked_by, fair, turn)
    where u.blocked_by is not null or u.turn is not null
  ), moved as (
    update stepwell.job j
    set state = case when l.blocked_by is null then j.state else 'blocked'::stepwell.state end,
      blocked_by = l.blocked_by, run_at = coalesce(l.turn, j.run_at)
    from lined l
    where j.id = any (_found.ids) and j.id = l.id
    returning j.blocked_by, j.queue, j.rank, j.run_at
  )
  select array_agg(distinct m.blocked_by) filter (where m.blocked_by is not null),
    array_agg(row(m.queue, m.rank, m.run_at)::stepwell.place) filter (where m.blocked_by is null)
  into _keys, _places
  from moved m;
  if _places is not null then
    perform stepwell.notify_ready(_places, null);
  end if;
  return coalesce(_keys, '{}');
end
$$;
