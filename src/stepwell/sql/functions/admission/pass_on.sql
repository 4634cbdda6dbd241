-- Put jobs that leave their worker and go on at once in the claim order again: jobs of chains and machines, between two
-- steps. They keep the permits for their limits, and need no further tokens of their rates. The permit for the limit of
-- a queue is returned, because the next step may be in another queue. The caller has locked the jobs, and has taken
-- their fair keys away.
create or replace function stepwell.pass_on(_ids uuid[]) returns void
language plpgsql volatile
as $$
declare
  _found record;
  _queues text[];
  _places stepwell.place[];
begin
  select array_agg(j.id) as ids, array_agg((j.admission::jsonb - '{limits,rates}'::text[])::json) as admissions,
    array_agg(j.queue) as queues, array_agg(j.rank::integer) as ranks, array_agg(true) as due
  into _found
  from stepwell.job j
  where j.id = any (_ids) and j.admission is not null;
  if _found.ids is null then
    return;
  end if;
  with returned as (
    delete from stepwell.permit p where p.job_id = any (_found.ids) and p.key like E'\x02%' returning p.key
  )
  select array_agg(distinct substr(r.key, 2)) into _queues from returned r;
  if _queues is not null then
    perform stepwell.notify_queues(_queues);
  end if;
  with moved as (
    update stepwell.job j
    set run_at = l.turn, fair = l.fair
    from unnest(
      _found.ids,
      stepwell.line_up(stepwell.now(), _found.ids, _found.admissions, _found.queues, _found.ranks, _found.due)
    ) as l (id, admission, blocked_by, fair, turn)
    where j.id = any (_found.ids) and j.id = l.id and l.turn is not null
    returning j.queue, j.rank, j.run_at
  )
  select array_agg(row(m.queue, m.rank, m.run_at)::stepwell.place) into _places from moved m;
  if _places is not null then
    -- As in stepwell.queue_again.
    perform stepwell.notify_ready(_places, null);
  end if;
end
$$;
