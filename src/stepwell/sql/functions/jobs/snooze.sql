-- Hand back running jobs without counting the attempt: now (delay 0, in their old place) or after a delay. For clean
-- shutdowns, prefetched jobs that never started, and handlers that raise Snooze. _began: whether the handlers ran;
-- null, from workers of schema 5: those with a delay did. The rates of the jobs in _closing admit nothing until the
-- delay is over. _first_steps is as in stepwell.fail. Returns the ids refused by the fence.
create or replace function stepwell.snooze(
  _ids uuid[],
  _epochs integer[],
  _delays double precision[],
  _began boolean default null,
  _closing uuid[] default null,
  _first_steps text[] default null
) returns uuid[]
language plpgsql volatile security definer
as $$
declare
  _now timestamptz := stepwell.now();
  _accepted uuid[];
  _cancelling uuid[];
  _places stepwell.place[];
  _due_in double precision;
begin
  perform stepwell.lock_to_hand_back(_ids);
  if _first_steps is not null then
    perform stepwell.enter_first(_ids, _epochs, _first_steps);
  end if;
  with outcome as (
    select u.id, u.epoch, u.delay from unnest(_ids, _epochs, _delays) as u (id, epoch, delay) order by u.id
  ), given as (
    update stepwell.job j
    set state = case when o.delay > 0 then 'scheduled'::stepwell.state else 'ready'::stepwell.state end,
      run_at = case when o.delay > 0 then _now + o.delay * interval '1 second' else j.run_at end,
      attempt = j.attempt - 1, worker_id = null, progress = null,
      -- A run that never began does not end the grace period of a job whose args did not fit.
      misfit_epoch = case when coalesce(_began, o.delay > 0) then j.misfit_epoch else j.misfit_epoch + 1 end
    from outcome o
    where j.id = any (_ids) and j.id = o.id and j.epoch = o.epoch and j.worker_id is not null
    returning j.id, j.queue, j.rank, j.state, j.run_at, j.cancelling
  )
  select array_agg(g.id), array_agg(g.id) filter (where g.cancelling),
    array_agg(row(g.queue, g.rank, g.run_at)::stepwell.place) filter (where g.state = 'ready'),
    extract(epoch from min(g.run_at) filter (where g.state = 'scheduled') - _now)
  into _accepted, _cancelling, _places, _due_in
  from given g;
  if _closing is not null then
    insert into stepwell.bucket as b (key, used, used_at, closed_until)
    select r.rule ->> 'key', 0, _now, max(j.run_at)
    from stepwell.job j
    cross join lateral json_array_elements(j.admission -> 'rates') as r (rule)
    where j.id = any (_closing) and j.id = any (_accepted)
    group by r.rule ->> 'key'
    order by r.rule ->> 'key'
    on conflict (key) do update set closed_until = greatest(b.closed_until, excluded.closed_until);
  end if;
  perform stepwell.release(
    _handed_back => _accepted, _places => _places, _due_in => _due_in, _cancelling => _cancelling
  );
  return array(select i.id from unnest(_ids) as i (id) except select a.id from unnest(_accepted) as a (id));
end
$$;
