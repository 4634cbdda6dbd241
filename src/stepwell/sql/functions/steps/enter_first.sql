-- Save with which step of their chain, or state of their machine, running jobs have begun, when an attempt at it has
-- failed or snoozed: the next attempt is at the same step, even if a deploy has inserted others before it. The step has
-- the position 1, and the cursor remains null, as workers of schema 13 expect. The caller has locked the jobs.
-- _first_steps[k] is null if a job is past its first step.
create or replace function stepwell.enter_first(_ids uuid[], _epochs integer[], _first_steps text[]) returns void
language plpgsql volatile
as $$
declare
  _now timestamptz := stepwell.now();
begin
  with given as materialized (
    -- A job that is named twice enters one step.
    select distinct on (u.id) u.id, u.epoch, u.first_step, j.args
    from unnest(_ids, _epochs, _first_steps) as u (id, epoch, first_step)
    join stepwell.job j on j.id = u.id and j.epoch = u.epoch and j.worker_id is not null
    -- A job with an input is past its first step: the worker may not know that a move was committed.
    where j.id = any (_ids) and u.first_step is not null and j.input is null
    order by u.id
  ), counted as (
    update stepwell.job j
    set durable = true,
      -- The record is no progress, by which attempts would count from 1 again.
      steps_counted = j.steps_counted + case
        when (select true from stepwell.step s where s.job_id = j.id and s.key = g.first_step) then 0 else 1
      end
    from given g
    where j.id = any (_ids) and j.id = g.id
  )
  insert into stepwell.step as s (job_id, saved_at, n, epoch, kind, key, value)
  select g.id, _now, 1, g.epoch, 'state', g.first_step, g.args from given g
  on conflict (job_id, key) do update
  set saved_at = excluded.saved_at, n = excluded.n, epoch = excluded.epoch, value = excluded.value;
end
$$;
