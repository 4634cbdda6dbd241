-- Give jobs that no worker has claimed yet the args and options of a new enqueue with the same unique key. Those that
-- have started, or ended, are left as they are. So are children and callbacks of groups: others wait for their results
-- or give them their args. If a job is named twice, the last one counts. _queues, _ranks and _run_ats are those of the
-- new enqueue; _policies have the admission as a member.
-- A job keeps its time, and so its place, except with _moves[k]: then it waits until _run_ats[k], but not longer than
-- max_wait after its first enqueue. If its queue, priority, limits, rates or fair key change, it gives back its permits
-- and lines up again.
create or replace function stepwell.replace_jobs(
  _now timestamptz,
  _ids uuid[],
  _moves boolean[],
  _tasks text[],
  _args text[],
  _queues text[],
  _ranks integer[],
  _run_ats timestamptz[],
  _metadata text[],
  _max_attempts integer[],
  _owners text[],
  _policies text[]
) returns void
language plpgsql volatile
as $$
declare
  _locked uuid[];
  _lining uuid[];
  _keys text[];
  _places stepwell.place[];
  _due_in double precision;
begin
  _locked := array(
    select l.id from (
      select j.id from stepwell.job j
      where j.id = any (_ids) and j.epoch = 0 and j.worker_id is null and j.parent_id is null
        -- As a scalar: with "exists" the planner might read all groups.
        and (select true from stepwell.job_group g where g.then_id = j.id limit 1) is null
      order by j.id
      for update
    ) l
  );
  if cardinality(_locked) = 0 then
    return;
  end if;
  with given as materialized (
    select distinct on (u.id) u.id, u.moves, u.task, u.args::json as args, u.queue, u.rank, u.run_at,
      u.metadata::jsonb as metadata, u.max_attempts, u.owner,
      nullif((p.policy::jsonb - 'admission')::text, '{}')::json as policy,
      p.policy -> 'admission' as admission
    from unnest(_ids, _moves, _tasks, _args, _queues, _ranks, _run_ats, _metadata, _max_attempts, _owners, _policies)
      with ordinality as u (id, moves, task, args, queue, rank, run_at, metadata, max_attempts, owner, policy, n)
    cross join lateral (select u.policy::json as policy) p
    order by u.id, u.n desc
  ), planned as materialized (
    select g.id,
      -- A run that waits for the previous run of its schedule is in no line.
      j.state::text = 'blocked' and j.blocked_by is null as waits,
      g.moves or j.queue <> g.queue or j.rank <> g.rank
        or (j.admission -> 'limits')::text is distinct from (g.admission -> 'limits')::text
        or (j.admission -> 'rates')::text is distinct from (g.admission -> 'rates')::text
        or (j.admission -> 'fair')::text is distinct from (g.admission -> 'fair')::text as changed,
      case
        when g.moves then least(
          g.run_at,
          j.enqueued_at + (g.admission #>> '{unique,max_wait}')::double precision * interval '1 second'
        )
        -- The time of a job that has taken its turn among the fair keys is that turn.
        when j.fair is not null and j.state::text <> 'scheduled' then _now
        else j.run_at
      end as run_at
    from stepwell.job j
    join given g on g.id = j.id
    where j.id = any (_locked)
  ), replaced as (
    update stepwell.job j
    set task = g.task, args = g.args, queue = g.queue, rank = g.rank, metadata = g.metadata,
      max_attempts = g.max_attempts, owner = g.owner, policy = g.policy, admission = g.admission,
      lone_limit = stepwell.lone_limit(g.admission), fair = g.admission #>> '{fair,key}',
      run_at = case when p.changed then p.run_at else j.run_at end,
      blocked_by = case when p.changed then null else j.blocked_by end,
      state = case
        when p.waits or not p.changed then j.state
        when p.run_at > _now then 'scheduled'::stepwell.state
        else 'ready'::stepwell.state
      end
    from given g
    join planned p on p.id = g.id
    where j.id = any (_locked) and j.id = g.id
    returning j.id, p.changed and not p.waits as lines_up, j.state,
      row(j.queue, j.rank, j.run_at)::stepwell.place as place
  )
  select array_agg(r.id), array_agg(r.place) filter (where r.state = 'ready') into _lining, _places
  from replaced r where r.lines_up;
  perform stepwell.look_at_lines(_locked);
  if _lining is null then
    return;
  end if;
  _keys := stepwell.return_permits(_lining, null) || stepwell.queue_again(_lining);
  -- A turn may be earlier than the time of the job.
  select _places || array_agg(row(j.queue, j.rank, j.run_at)::stepwell.place) filter (where j.state::text = 'ready'),
    extract(epoch from min(j.run_at) filter (where j.state::text = 'scheduled') - _now)
  into _places, _due_in
  from stepwell.job j where j.id = any (_lining);
  -- The transaction may stay open, so a worker admits the next jobs in line.
  perform stepwell.notify_blocked(_keys);
  perform stepwell.notify_ready(_places, _due_in);
end
$$;
