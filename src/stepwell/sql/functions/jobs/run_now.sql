-- Make jobs ready that wait for a given time: scheduled jobs, including those that wait for their next attempt or for a
-- worker that their args fit; durable jobs that wait for the next attempt of a step; and chains and machines that wait
-- before their next step. A job goes behind the ready jobs of its priority. Jobs that sleep, wait for an event or a
-- child, or are blocked are left unchanged. Returns the ids of the jobs that became ready.
create or replace function stepwell.run_now(_ids uuid[]) returns uuid[]
language plpgsql volatile security definer
as $$
declare
  _now timestamptz := stepwell.now();
  _locked uuid[];
  _waiting uuid[];
  _made uuid[];
  _places stepwell.place[];
  _keyed uuid[];
begin
  _locked := array(
    select l.id from (
      select j.id from stepwell.job j where j.id = any (_ids) and j.worker_id is null order by j.id for update
    ) l
  );
  -- States as text: with the states themselves the planner would take the index on due jobs.
  _waiting := array(
    select j.id from stepwell.job j where j.id = any (_locked) and j.state::text = 'waiting' and j.awaits is not null
  );
  with made as (
    update stepwell.job j
    set state = 'ready', run_at = _now, misfits = null
    where j.id = any (_locked) and (j.state::text = 'scheduled' or j.state::text = 'waiting' and j.awaits is null)
    returning j.id, j.queue, j.rank, j.run_at, j.admission is not null as keyed
  )
  select array_agg(m.id), array_agg(row(m.queue, m.rank, m.run_at)::stepwell.place),
    array_agg(m.id) filter (where m.keyed)
  into _made, _places, _keyed
  from made m;
  if _keyed is not null then
    perform stepwell.notify_blocked(stepwell.queue_again(_keyed));
  end if;
  perform stepwell.look_at_lines(_locked);
  perform stepwell.notify_ready(_places, null);
  if cardinality(_waiting) > 0 then
    update stepwell.step s set pending = false
    where s.job_id = any (_waiting) and s.kind = 'retry' and s.pending and s.awaited is not null;
    if found then
      perform stepwell.wake(_waiting);
    end if;
    _made := _made || array(select j.id from stepwell.job j where j.id = any (_waiting) and j.state::text = 'ready');
  end if;
  return coalesce(_made, '{}');
end
$$;
