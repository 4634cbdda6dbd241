-- Retry jobs now. Failed and cancelled jobs come back from history under the same id with fresh attempts; the epoch
-- continues to count. A job that waits for its next attempt, or for a worker that its args fit, becomes ready. Returns
-- the ids of both. A job whose unique key another job has taken meanwhile is left in history.
-- A run of a schedule that does not allow overlap is blocked until no other run of the schedule is live.
-- A durable job continues with its saved steps and its signals, without the step at which it failed and the children
-- that had not ended. With _step it goes back to that step; a step of a chain or machine gets its last input. With
-- _from_start it begins anew, with a new life, as does a job that was undone. Both are for finished jobs.
-- With _input, a chain or machine continues at any of its steps, reached before or not, with that input.
-- Beside stepwell.insert_jobs this is the second place that inserts jobs: they carry over columns that no new job has
-- (epoch, life, cursor, input, forked_from and more), in the statement that deletes them from history.
create or replace function stepwell.retry(
  _ids uuid[],
  _step text default null,
  _from_start boolean default false,
  _input text default null
) returns uuid[]
language plpgsql volatile security definer
as $$
declare
  _now timestamptz := stepwell.now();
  _live uuid[];
  _ended uuid[];
  _back uuid[];
  _places stepwell.place[];
  _missing uuid;
  _sent uuid[];
  _schedule_ids uuid[];
  _keyed uuid[];
  _unique record;
  _holders uuid[];
  _members stepwell.member_end[];
  _callbacks uuid[];
begin
  if _input is not null then
    if _from_start or (length(_step) between 1 and 1000) is not true then
      raise exception using errcode = 'invalid_parameter_value',
        message = 'stepwell: _input needs _step, and excludes _from_start';
    end if;
    perform stepwell.check_values(array[_input]);
    perform stepwell.check_sizes('step', array[_input]);
  end if;
  -- Lock live jobs first, then finished ones, each in the order of their ids. A job that another retry brings back
  -- meanwhile is in neither list, and is left to that retry.
  _live := array(select l.id from (select j.id from stepwell.job j where j.id = any (_ids) order by j.id for update) l);
  _ended := array(
    select l.id from (
      select h.id from stepwell.history h
      where h.id = any (_ids) and h.state in ('failed', 'cancelled') and h.expires_at > _now
      order by h.id
      for update
    ) l
  );
  if _input is not null then
    select h.id into _missing
    from stepwell.history h
    where h.id = any (_ended)
      and exists (select from stepwell.unfold(h.steps) s where s.kind not in ('state', 'taken'))
    limit 1;
    if found then
      raise exception using errcode = 'SW002',
        message = format(
          'stepwell: job %s has steps of a durable function: only a step of a chain or a state of a machine takes an '
          'input',
          _missing
        );
    end if;
  elsif _step is not null then
    select h.id into _missing
    from stepwell.history h
    where h.id = any (_ended)
      -- A job can be retried at the step at which it failed, even if nothing of that step was saved.
      and h.failed_step is distinct from _step
      and not exists (select from stepwell.unfold(h.steps) s where s.key = _step)
    limit 1;
    if found then
      raise exception using errcode = 'SW004',
        message = format('stepwell: job %s has no step %s: "stepwell jobs show %1$s" lists its steps', _missing,
          quote_literal(_step));
    end if;
  end if;

  select array_agg(h.id order by h.id) as ids, array_agg(h.admission order by h.id) as admissions,
    array_agg(h.enqueued_at order by h.id) as since
  into _unique
  from stepwell.history h
  where h.id = any (_ended) and h.admission -> 'unique' is not null
    -- A job that has started no longer needs a key that is taken until the start.
    and ((h.admission #>> '{unique,until_start}')::boolean is not true or h.epoch = 0);
  if _unique.ids is not null then
    _holders := stepwell.take_keys(_now, _unique.ids, _unique.admissions, _unique.since);
    if _holders is not null then
      _ended := array(
        select e.id from unnest(_ended) as e (id)
        except
        select u.id from unnest(_unique.ids, _holders) as u (id, holder) where u.holder is not null
      );
    end if;
  end if;
  _sent := array(select e.job_id from stepwell.event e where e.job_id = any (_ids));
  with revived as (
    delete from stepwell.history h
    where h.id = any (_ended)
    returning h.id, h.enqueued_at, h.claimed_at, h.epoch, h.max_attempts, h.rank, h.task, h.queue, h.args, h.metadata,
      h.schedule_id, h.scheduled_for, h.cursor, h.input, h.parent_id, h.parent_key, h.forked_from, h.owner, h.policy,
      h.admission, h.group_id, h.state, h.failed_step, h.steps, h.life + case
        when _from_start or exists (select from stepwell.unfold(h.steps) u where u.kind = 'undo') then 1 else 0
      end as life
  ), kept as materialized (
    select r.id, k.key, k.n, k.kind, k.epoch, k.saved_at, k.seconds, k.pending, k.timed_out, k.undo, k.large, k.until,
      k.fingerprint, k.child_id, k.event, k.event_key, k.event_id, k.value, k.error
    from revived r
    cross join lateral stepwell.kept_steps(r.steps, r.failed_step, _step, _from_start) as s (keys)
    cross join lateral stepwell.unfold(r.steps) k
    where k.key = any (s.keys) and (_input is null or k.key <> _step)
  ), put_back as (
    -- Signals that were received by steps which are repeated. They keep their ids, so they are still first in line.
    insert into stepwell.event (id, emitted_at, expires_at, large, job_id, name, key, value)
    overriding system value
    select u.event_id, _now, 'infinity', u.large, r.id, u.event, '',
      case
        when u.large then (select v.value from stepwell.large_value v where v.job_id = r.id and v.key = u.key)
        else u.value
      end
    from revived r
    cross join lateral stepwell.unfold(r.steps) u
    where u.kind = 'receive' and u.event_id is not null
      and ((r.id, u.key) in (select k.id, k.key from kept k)) is not true
  ), saved as (
    insert into stepwell.step (job_id, saved_at, until, event_id, child_id, seconds, n, epoch, fingerprint, pending,
      timed_out, undo, large, kind, key, event, event_key, value, error)
    select k.id, k.saved_at, k.until, k.event_id, k.child_id, k.seconds, k.n, k.epoch, k.fingerprint, k.pending,
      k.timed_out, k.undo, k.large, k.kind, k.key, k.event, k.event_key, k.value, k.error
    from kept k
  ), entered as (
    -- Position 1 is reserved for the first step of the job, even if nothing is saved.
    insert into stepwell.step (job_id, saved_at, n, epoch, kind, key, value)
    select r.id, _now, greatest((select max(u.n) from stepwell.unfold(r.steps) u), 1) + 1, r.epoch, 'state', _step,
      _input::json
    from revived r
    where _input is not null
  ), back as (
    insert into stepwell.job (id, run_at, enqueued_at, claimed_at, epoch, max_attempts, rank, state, task, queue,
      args, metadata, schedule_id, scheduled_for, parent_id, parent_key, forked_from, owner, policy, life, durable,
      cursor, input, admission, lone_limit, fair, group_id)
    select r.id, _now, r.enqueued_at, r.claimed_at, r.epoch, r.max_attempts, r.rank,
      case
        -- With "exists" the planner might hash all schedules.
        when (select c.overlap <> 'allow' from stepwell.schedule c where c.id = r.schedule_id)
        then 'blocked'::stepwell.state
        -- The callback of a group that has not ended, or that ended while the callback was cancelled.
        when (select not g.then_started from stepwell.job_group g where g.then_id = r.id)
        then 'blocked'::stepwell.state
        else 'ready'::stepwell.state
      end,
      r.task, r.queue, r.args, r.metadata, r.schedule_id, r.scheduled_for, r.parent_id, r.parent_key, r.forked_from,
      r.owner, r.policy, r.life,
      -- A durable job is claimed with its journal, which carries the life.
      r.life > 0 or _input is not null
      -- The end of a durable job deletes its unread signals.
        or r.id in (select k.id from kept k) or r.id in (select s.id from unnest(_sent) as s (id))
        or exists (select from stepwell.unfold(r.steps) u where u.kind = 'receive'),
      case
        when _input is not null then _step
        when _step_state.first or _from_start then null
        else coalesce(_step_state.key, r.cursor)
      end,
      case
        when _input is not null then _input::json
        when _step_state.first or _from_start then null
        when _step_state.key is null then r.input
        else _step_state.value
      end,
      r.admission, stepwell.lone_limit(r.admission), r.admission #>> '{fair,key}', r.group_id
    from revived r
    -- The requested step of a chain or machine. If the job began with it, the saved position 1 says so.
    left join lateral (
      select u.key, u.value, u.n = 1 as first
      from stepwell.unfold(r.steps) u where u.key = _step and u.kind = 'state'
    ) _step_state on true
    returning id, queue, rank, run_at, state, schedule_id, admission is not null as keyed
  ), hurried as (
    update stepwell.job j
    set state = 'ready', run_at = _now, misfits = null
    -- As text: with the state itself the planner would take the index on scheduled jobs.
    where j.id = any (_live) and (j.attempt > 0 or j.run_at = j.misfit_until) and j.state::text = 'scheduled'
      and _step is null and not _from_start
    returning j.id, j.queue, j.rank, j.run_at, j.admission is not null as keyed
  ), ready as (
    select b.id, b.queue, b.rank, b.run_at, case when b.state = 'blocked' then b.schedule_id end as schedule_id,
      b.keyed, b.state = 'blocked' as blocked
    from back b
    union all
    select h.id, h.queue, h.rank, h.run_at, null, h.keyed, false from hurried h
  )
  select array_agg(r.id),
    array_agg(row(r.queue, r.rank, r.run_at)::stepwell.place) filter (where not r.blocked),
    array_agg(distinct r.schedule_id) filter (where r.schedule_id is not null), array_agg(r.id) filter (where r.keyed),
    array_agg(r.id) filter (where r.blocked and r.schedule_id is null),
    (
      select array_agg(row(v.group_id, v.id, v.state, null)::stepwell.member_end)
      from revived v
      where v.group_id is not null
    )
  into _back, _places, _schedule_ids, _keyed, _callbacks, _members
  from ready r;
  delete from stepwell.large_value v
  where v.job_id = any (_back)
    and (select true from stepwell.step s where s.job_id = v.job_id and s.key = v.key and s.large) is null;
  update stepwell.large_value v set expires_at = 'infinity' where v.job_id = any (_back);
  update stepwell.event e set expires_at = 'infinity' where e.job_id = any (_back);
  if _keyed is not null then
    perform stepwell.notify_blocked(stepwell.queue_again(_keyed));
  end if;
  perform stepwell.look_at_lines(_live);
  if _members is not null or _callbacks is not null then
    perform stepwell.uncount_members(_members, _callbacks);
  end if;
  perform stepwell.notify_ready(_places, null);
  if _schedule_ids is not null then
    perform stepwell.admit(_schedule_ids);
  end if;
  return coalesce(_back, '{}');
end
$$;
