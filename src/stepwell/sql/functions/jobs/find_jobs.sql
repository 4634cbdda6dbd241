-- Find the newest jobs that match all given filters: at most _limit, live or finished, with ids below _before.
-- No index serves every filter, so the function walks from the newest job to the oldest and stops after _look jobs. So
-- a call is short and holds its snapshot only briefly, even if nothing matches. looked_to is the id at which it
-- stopped: pass it as _before to continue. Null: no older job matches.
-- _group: only members of this group. _failure: only jobs whose last failed attempt has this fingerprint. _error
-- matches a part of the error, ignoring case: of a live job without one, of that of its last attempt. _to_retry leaves
-- out scheduled jobs that a retry would not change.
create or replace function stepwell.find_jobs(
  _states stepwell.state[] default null,
  _task text default null,
  _queue text default null,
  _owner text default null,
  _worker_id uuid default null,
  _metadata jsonb default null,
  _error text default null,
  _enqueued_after timestamptz default null,
  _enqueued_before timestamptz default null,
  _before uuid default null,
  _limit integer default 100,
  _look integer default 50000,
  _to_retry boolean default false,
  _group uuid default null,
  _failure uuid default null,
  out ids uuid[],
  out looked_to uuid
)
-- Stable, so that it sees the same snapshot as the statement that reads the rows of these jobs.
language plpgsql stable security definer
as $$
declare
  _now timestamptz := stepwell.now();
  _live boolean := _states is null or _states && '{scheduled,ready,running,waiting,blocked}';
  _ended boolean := _states is null or _states && '{succeeded,failed,cancelled}';
  -- These have indexes of their own.
  _only_failed boolean := _states is not null and _states <@ '{failed}';
  _only_running boolean := _states is not null and _states <@ '{running}';
  _from uuid := '00000000-0000-0000-0000-000000000000';
  _to uuid := coalesce(_before, 'ffffffff-ffff-ffff-ffff-ffffffffffff');
  _last_member uuid := 'ffffffff-ffff-ffff-ffff-ffffffffffff';
  _rows bigint;
  _last bigint;
begin
  if _limit is null or _look is null or _limit not between 1 and 1000000 or _look not between 1 and 1000000 then
    raise exception using errcode = 'invalid_parameter_value',
      message = 'stepwell: find_jobs takes a _limit and a _look between 1 and 1000000';
  end if;
  if _failure is not null then
    -- Each of these jobs is looked up by its id.
    _look := least(_look, 5000);
  end if;
  if _error is not null and _live then
    -- So are the last attempts of live jobs.
    _look := least(_look, 5000);
  end if;
  -- An id begins with its real time. An hour is longer than an enqueue takes, or than a clock is set back.
  if not exists (select from stepwell.clock) then
    _from := greatest(_from, stepwell.first_uuid_at(_enqueued_after, -3600));
    _to := least(_to, stepwell.first_uuid_at(_enqueued_before, 3600));
  end if;
  if _group is not null then
    -- The members have ids in this range. Others may be among them.
    select greatest(_from, g.first_id), coalesce(g.last_id, _last_member) into _from, _last_member
    from stepwell.job_group g where g.id = _group;
    if not found then
      looked_to := null;
      ids := '{}';
      return;
    end if;
  end if;
  select array_agg(f.id) filter (where f.matches), (array_agg(f.id))[count(*)], count(*), max(f.n)
  into ids, looked_to, _rows, _last
  from (
    select w.id, w.n, w.matches
    from (
      select a.id, row_number() over () as n,
        (_states is null or a.state = any (_states))
          and (_task is null or a.task = _task)
          and (_queue is null or a.queue = _queue)
          and (_owner is null or a.owner = _owner)
          and (_worker_id is null or a.worker_id = _worker_id)
          and (_group is null or a.group_id = _group)
          and (_metadata is null or a.metadata @> _metadata)
          and (_enqueued_after is null or a.enqueued_at > _enqueued_after)
          and (_enqueued_before is null or a.enqueued_at <= _enqueued_before)
          and (not _to_retry or a.to_retry)
          -- A job of this failure that is gone, or has failed in another way since.
          and a.state is not null
          -- At the end, so that the last attempt is looked up only if all else matches.
          and (
            _error is null
            or strpos(
              lower(coalesce(a.error, case when a.attempt > 0 then stepwell.last_error(a.id, a.attempt, null) end)),
              lower(_error)
            ) > 0
          )
          as matches
      from (
        (
          select u.id, u.state, u.task, u.queue, u.owner, u.worker_id, u.metadata, u.enqueued_at, u.error, u.to_retry,
            u.group_id, u.attempt
          from (
            select j.id, j.state, j.task, j.queue, j.owner, j.worker_id, j.metadata, j.enqueued_at,
              coalesce(j.reason, case when j.worker_id is null and j.run_at = j.misfit_until then j.misfit end)
                as error,
              -- A scheduled job without an attempt was scheduled on purpose.
              j.state <> 'scheduled' or j.attempt > 0 or j.run_at = j.misfit_until as to_retry,
              j.group_id, j.attempt, null::timestamptz as expires_at, 'live' as part
            from stepwell.job j
            union all
            select h.id, h.state, h.task, h.queue, h.owner, h.worker_id, h.metadata, h.enqueued_at, h.error, true,
              h.group_id, 0, h.expires_at, 'history'
            from stepwell.history h
            union all
            select h.id, h.state, h.task, h.queue, h.owner, h.worker_id, h.metadata, h.enqueued_at, h.error, true,
              h.group_id, 0, h.expires_at, 'failed'
            from stepwell.history h
          ) u
          -- The condition is outside the union, as in the view stepwell.jobs: inside, Postgres could not walk along an
          -- index. The part is a constant, so the parts that are not wanted are not read.
          where _failure is null and u.id < _to and u.id >= _from and u.id <= _last_member
            and case u.part
              when 'live' then _live and not _only_running
              when 'history' then _ended and not _only_failed
              else _only_failed
            end
            and (u.part = 'live' or u.expires_at > _now)
            and (u.part <> 'failed' or u.state = 'failed')
          order by u.id desc
          limit _look
        )
        union all
        -- Running jobs are few, and may be anywhere among the others.
        (
          select r.id, r.state, r.task, r.queue, r.owner, r.worker_id, r.metadata, r.enqueued_at, r.reason, true,
            r.group_id, r.attempt
          from (
            select j.id, j.state, j.task, j.queue, j.owner, j.worker_id, j.metadata, j.enqueued_at, j.reason,
              j.group_id, j.attempt
            from stepwell.job j
            where _failure is null and _only_running and j.state = 'running'
            -- The order of the index on running jobs, so that it is used.
            order by j.worker_id
            offset 0
          ) r
          where r.id < _to and r.id >= _from
          order by r.id desc
          limit _look
        )
        union all
        (
          select f.job_id, l.state, l.task, l.queue, l.owner, l.worker_id, l.metadata, l.enqueued_at, l.error,
            l.to_retry, l.group_id, l.attempt
          from (
            select distinct c.job_id from stepwell.failure c
            where _failure is not null and c.fingerprint = _failure and c.job_id < _to and c.job_id >= _from
            order by c.job_id desc
            limit _look
          ) f
          left join lateral (
            select u.state, u.task, u.queue, u.owner, u.worker_id, u.metadata, u.enqueued_at, u.error, u.to_retry,
              u.group_id, u.attempt
            from (
              select j.state, j.task, j.queue, j.owner, j.worker_id, j.metadata, j.enqueued_at, j.reason as error,
                j.state <> 'scheduled' or j.attempt > 0 or j.run_at = j.misfit_until as to_retry, j.group_id,
                j.attempt
              from stepwell.job j where j.id = f.job_id
              union all
              select h.state, h.task, h.queue, h.owner, h.worker_id, h.metadata, h.enqueued_at, h.error, true,
                h.group_id, 0
              from stepwell.history h where h.id = f.job_id and h.expires_at > _now
              limit 1
            ) u
            where stepwell.last_failure(f.job_id) = _failure
          ) l on true
        )
      ) a
    ) w
    where w.matches is true or w.n = _look
    limit _limit
  ) f;
  ids := coalesce(ids, '{}');
  if _rows < _limit and _last is distinct from _look then
    looked_to := null;
  end if;
end
$$;
