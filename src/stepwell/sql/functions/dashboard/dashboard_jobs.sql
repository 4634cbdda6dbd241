-- Search jobs: newest first, or oldest first, until _limit jobs are found or _milliseconds are gone. It says how far it
-- looked: looked_to is the last job that it looked at, and passing that as _before continues from there. It is null
-- at the end.
-- The walk is within the chosen state wherever an index or a small number allows that, so that a rare state is found
-- behind millions of other jobs. Elsewhere it passes over jobs of other states, which count as looked at. _argument
-- matches the value of an argument, given by name or by a path with dots, as text; without a name, any part of the
-- args. _error matches a part of the error, ignoring case: of a live job without one, of that of its last attempt. The
-- first 1,000 characters are searched, and 300 are returned. _failure is the fingerprint of the last failed attempt.
-- _sort is another order: due (the earliest first), priority (the highest first) or runtime (the longest first). Then
-- the page begins after _offset jobs, and "sorted" tells what the order is over. If "whole" is true, it is over all that
-- match: a state has few jobs, or an index has this order. Otherwise it is over the newest jobs that match, up to
-- 1,000, which the walk found before its time was gone; looked_to continues with older ones.
-- _states is for several states at once, and _group for the members of a group. _as_of: only jobs that were enqueued by
-- then and, if they have ended, ended by then. _to_retry leaves out scheduled jobs that a retry would not change. With
-- _ids_only it returns the ids alone, up to 10,001 of them, and goes on from _before without a look at the front of any
-- index: bulk operations call it many times.
create or replace function stepwell.dashboard_jobs(
  _state stepwell.state default null,
  _queue text default null,
  _task text default null,
  _owner text default null,
  _worker_id uuid default null,
  _metadata jsonb default null,
  _argument text default null,
  _value text default null,
  _error text default null,
  _enqueued_after timestamptz default null,
  _enqueued_before timestamptz default null,
  _before uuid default null,
  _oldest_first boolean default false,
  _limit integer default 50,
  _milliseconds integer default 150,
  _failure uuid default null,
  _states stepwell.state[] default null,
  _group uuid default null,
  _as_of timestamptz default null,
  _ids_only boolean default false,
  _to_retry boolean default false,
  _sort text default null,
  _offset integer default 0
)
returns json
language plpgsql stable security definer
as $$
declare
  _now timestamptz := stepwell.now();
  _length interval := least(greatest(coalesce(_milliseconds, 150), 1), 10000) * interval '1 ms';
  _until timestamptz;
  _page integer := least(greatest(coalesce(_limit, 50), 1), case when _ids_only then 10001 else 500 end);
  _small constant integer := 10001;
  _most_running constant integer := 30001;
  -- These texts are constants: nothing that a caller gives becomes part of a statement.
  _live constant text := 'select j.id, j.state, j.task, j.queue, -j.rank::integer as priority, j.args, j.metadata,
    coalesce(j.reason, case when j.worker_id is null and j.run_at = j.misfit_until then j.misfit end) as error,
    j.attempt, j.max_attempts, j.enqueued_at, j.run_at, j.claimed_at, null::timestamptz as finished_at, j.worker_id,
    j.owner, j.progress, j.group_id, null::timestamptz as expires_at,
    j.state <> ''scheduled'' or j.attempt > 0 or j.run_at = j.misfit_until as to_retry from stepwell.job j';
  _ended constant text := 'select h.id, h.state, h.task, h.queue, -h.rank::integer as priority, h.args, h.metadata,
    h.error, h.attempt, h.max_attempts, h.enqueued_at, h.run_at, h.claimed_at, h.finished_at, h.worker_id, h.owner,
    null::json as progress, h.group_id, h.expires_at, true as to_retry from stepwell.history h';
  _most_sorted constant integer := 1000;
  _skipped integer := least(greatest(coalesce(_offset, 0), 0), _most_sorted);
  _key text := case _sort
    when 'due' then 'extract(epoch from u.run_at)'
    when 'priority' then '-u.priority'
    when 'runtime' then format(
      'extract(epoch from u.claimed_at - case when u.state = ''running'' then %L else u.finished_at end)', _now
    )
    else 'null'
  end;
  _whole boolean := false;
  _began timestamptz;
  _shown integer;
  _found_all integer;
  _next integer;
  _sorted json;
  _keys double precision[] := '{}';
  _source text;
  _few uuid[];
  _running integer;
  _from uuid := '00000000-0000-0000-0000-000000000000';
  _to uuid := 'ffffffff-ffff-ffff-ffff-ffffffffffff';
  _found record;
  _last_id uuid;
  _last_time timestamptz;
  _jobs json[] := '{}';
  _ids uuid[] := '{}';
  _looked integer := 0;
  _stopped boolean := false;
begin
  if _sort is not null and _key = 'null' then
    raise exception using errcode = 'SW002',
      message = format('stepwell: sort is %s: it must be due, priority or runtime', left(_sort, 100));
  end if;
  _oldest_first := _oldest_first and _sort is null;
  _states := nullif(_states, '{}');
  if cardinality(_states) = 1 then
    _state := coalesce(_state, _states[array_lower(_states, 1)]);
  end if;
  case
    when _failure is not null then
      -- A job that has failed otherwise since, or is no longer kept, comes out as well, for the time to be looked at.
      _source := 'select f.id, l.state, l.task, l.queue, l.priority, l.args, l.metadata, l.error, l.attempt,
          l.max_attempts, l.enqueued_at, l.run_at, l.claimed_at, l.finished_at, l.worker_id, l.owner, l.progress,
          l.group_id, l.expires_at, l.to_retry
        from (
          select distinct f.job_id as id from stepwell.failure f
          where f.fingerprint = $16 and f.job_id between $14 and $13
          order by f.job_id' || case when _oldest_first then '' else ' desc' end || '
        ) f left join lateral (
          ' || _live || ' where j.id = f.id union all ' || _ended || ' where h.id = f.id
        ) l on true';
    when _state in ('scheduled', 'waiting', 'blocked') and _queue is not null then
      -- The index on these has the ids of a queue in order.
      _source := _live || ' where j.state in (''scheduled'', ''waiting'', ''blocked'') and j.state = $1 and j.queue = $2';
    when _state is not null or _states is not null then
      -- Each state of finished jobs but the most frequent one has an index of its own. Other states are not a condition
      -- of the source: between two jobs of a state may be millions of others, and the time is looked at for each job
      -- that comes out of the source.
      _states := coalesce(_states, array[_state]);
      select string_agg(u.source, ' union all ') into _source
      from (
        select _live as source where _states && '{scheduled,ready,running,waiting,blocked}'
        union all
        select _ended where 'succeeded' = any (_states)
        union all
        -- With the state as a constant, Postgres uses the index of that state.
        select _ended || format(' where h.state = %L::stepwell.state', s.state)
        from unnest('{failed,cancelled}'::stepwell.state[]) as s (state)
        where s.state = any (_states) and 'succeeded' <> all (_states)
      ) u;
    else
      _source := _live || ' union all ' || _ended;
  end case;
  -- An id begins with its real time. An hour is longer than an enqueue takes, or than a clock is set back.
  if not exists (select from stepwell.clock) then
    _from := greatest(_from, stepwell.first_uuid_at(_enqueued_after, -3600));
    _to := least(_to, stepwell.first_uuid_at(least(_enqueued_before, _as_of), 3600));
  end if;
  if _group is not null then
    -- The members have ids in this range. Others may be among them.
    select greatest(_from, g.first_id) into _from from stepwell.job_group g where g.id = _group;
  end if;
  if _oldest_first then
    _from := greatest(_from, _before);
  else
    _to := least(_to, _before);
  end if;
  -- Few jobs in a live state are collected first, so that the walk does not lead through all the others. Their order is
  -- that of the array: to sort the rows would read all of them.
  if _failure is not null then
    _few := null;
  elsif _state = 'running' then
    -- Their index has no order of ids, so all of them are collected, or none: the first of them would leave out others
    -- that are newer.
    if _worker_id is null then
      select coalesce(array_agg(r.id) filter (where r.fits), '{}'), count(*) into _few, _running
      from (
        select j.id, j.id between _from and _to and (_queue is null or j.queue = _queue)
          and (_group is null or j.group_id = _group) as fits
        from stepwell.job j where j.state = 'running'
        order by j.worker_id
        limit _most_running
      ) r;
    else
      select coalesce(array_agg(r.id) filter (where r.fits), '{}'), count(*) into _few, _running
      from (
        select j.id, j.id between _from and _to and (_queue is null or j.queue = _queue)
          and (_group is null or j.group_id = _group) as fits
        from stepwell.job j where j.state = 'running' and j.worker_id = _worker_id
        limit _most_running
      ) r;
    end if;
    if _running = _most_running then
      _few := null;
    end if;
  elsif _ids_only then
    null;
  elsif _state = 'ready' and not (stepwell.count_state('ready', _queue, _small - 1)).more then
    if _queue is null then
      _few := array(select j.id from stepwell.job j where j.state = 'ready' limit _small);
    else
      _few := array(select j.id from stepwell.job j where j.state = 'ready' and j.queue = _queue limit _small);
    end if;
  elsif _state in ('scheduled', 'waiting', 'blocked') and _queue is null
    and not (stepwell.count_state(_state, null, _small - 1)).more
  then
    _few := array(
      select j.id from stepwell.job j
      where j.state in ('scheduled', 'waiting', 'blocked') and j.state = _state
      order by j.state, j.queue, j.id
      limit _small
    );
  end if;
  if _sort is not null and cardinality(_few) <= _small then
    _whole := true;
    _began := clock_timestamp();
    execute format(
      'select array(
        select u.id from unnest($1) as f (id) cross join lateral (%s where j.id = f.id offset 0) u
        order by %s nulls last, u.priority desc, u.run_at, u.id
      )', _live, _key
    )
    into _few using _few;
    -- The page is to answer as soon as others do.
    _length := greatest(_length - (clock_timestamp() - _began), interval '1 ms');
  elsif _few is not null and _oldest_first then
    _few := array(select u.id from unnest(_few) as u (id) order by u.id);
  elsif _few is not null then
    _few := array(select u.id from unnest(_few) as u (id) order by u.id desc);
  end if;
  if _few is not null then
    _source := 'select l.* from unnest($15) as f (id) cross join lateral (' || _live
      || ' where j.id = f.id offset 0) l';
  elsif _failure is null and (
    _sort = 'due' and _state in ('scheduled', 'waiting') or _sort = 'priority' and _state = 'ready' and _queue is not null
  ) then
    _whole := true;
    _source := _live || case _sort
      when 'due' then ' where j.state in (''scheduled'', ''waiting'') order by j.run_at'
      -- The order in which workers claim them.
      else ' where j.state = ''ready'' and j.queue = $2 order by j.queue, j.rank, j.run_at, j.id'
    end;
    -- This walk does not follow the ids: it would pass over those of another time without a look at the clock.
    _from := '00000000-0000-0000-0000-000000000000';
    _to := 'ffffffff-ffff-ffff-ffff-ffffffffffff';
  end if;
  if _sort is not null then
    _shown := _page;
    -- One more, which tells that there are more.
    _page := case when _whole then least(_skipped + _shown, _most_sorted) + 1 else _most_sorted end;
  end if;
  for _found in execute format(
    'select u.*, (
        ($1 is null or u.state = $1) and ($2 is null or u.queue = $2) and ($3 is null or u.task = $3)
        and ($4 is null or u.owner = $4) and ($5 is null or u.worker_id = $5) and ($6 is null or u.metadata @> $6)
        and ($8 is null or case
          when $7 is null then strpos(u.args::text, $8) > 0
          when strpos(u.args::text, ''\u'') > 0 then stepwell.argument_is(u.args, $7, $8)
          else u.args ->> $7 = $8 or u.args #>> string_to_array($7, ''.'') = $8
        end)
        and ($10 is null or u.enqueued_at > $10) and ($11 is null or u.enqueued_at <= $11)
        and (u.expires_at is null or u.expires_at > $12)
        and ($17 is null or u.state = any ($17)) and ($18 is null or u.group_id = $18)
        and ($19 is null or u.enqueued_at <= $19 and (u.finished_at is null or u.finished_at <= $19))
        and (not $20 or u.to_retry) and u.state is not null
        -- Here, so that the last attempt is looked up only if all that is cheaper matches.
        and ($9 is null or strpos(lower(coalesce(u.error, case when u.attempt > 0 and u.finished_at is null then
          stepwell.last_error(u.id, u.attempt, u.finished_at)
        end)), lower($9)) > 0)
        and ($16 is null or stepwell.last_failure(u.id) = $16)
      ) is true as matches, (%s)::double precision as key
    from (%s) u where u.id %s $13 and u.id %s $14%s',
    _key, _source, case when _oldest_first then '<=' else '<' end, case when _oldest_first then '>' else '>=' end,
    case
      when _few is not null or _failure is not null or _whole then ''
      when _oldest_first then ' order by u.id'
      else ' order by u.id desc'
    end
  )
  using _state, _queue, _task, _owner, _worker_id, _metadata, _argument, _value, _error, _enqueued_after,
    _enqueued_before, _now, _to, _from, _few, _failure, _states, _group, _as_of,
    coalesce(_to_retry, false)
  loop
    _looked := _looked + 1;
    -- The time counts from the first job on: to plan the first search of a session may take as long.
    _until := coalesce(_until, clock_timestamp() + _length);
    _last_id := _found.id;
    _last_time := coalesce(_found.enqueued_at, _last_time);
    if _found.matches and _ids_only then
      _ids := _ids || _found.id;
    elsif _found.matches then
      _jobs := _jobs || json_build_object(
        'id', _found.id, 'state', _found.state, 'task', _found.task, 'queue', _found.queue,
        'priority', _found.priority, 'attempt', _found.attempt, 'max_attempts', _found.max_attempts,
        -- A page is short even if its jobs are large.
        'args', case when octet_length(_found.args::text) <= 4000 then _found.args::text end,
        'error', left(coalesce(_found.error, stepwell.last_error(_found.id, _found.attempt, _found.finished_at)), 300),
        'enqueued_at', _found.enqueued_at, 'run_at', nullif(nullif(_found.run_at, 'infinity'), '-infinity'),
        'claimed_at', _found.claimed_at, 'finished_at', _found.finished_at, 'worker_id', _found.worker_id,
        'owner', _found.owner,
        -- Whole or not at all: a part of it is no JSON.
        'progress', case when length(_found.progress::text) <= 1000 then _found.progress::text end
      );
      _keys := _keys || _found.key;
    end if;
    if cardinality(_jobs) + cardinality(_ids) = _page or clock_timestamp() > _until then
      _stopped := true;
      exit;
    end if;
  end loop;
  if _sort is not null then
    _found_all := cardinality(_jobs);
    _next := case when _found_all > _skipped + _shown and _skipped + _shown < _most_sorted then _skipped + _shown end;
    _jobs := array(
      select u.job from unnest(_jobs, _keys) with ordinality as u (job, key, n)
      order by case when not _whole then u.key end nulls last, u.n
      offset _skipped limit least(_shown, _most_sorted - _skipped)
    );
    _sorted := json_build_object(
      'by', _sort, 'whole', _whole, 'over', least(_found_all, _most_sorted), 'next', _next,
      'more', _stopped and _next is null
    );
  end if;
  return json_build_object(
    case when _ids_only then 'ids' else 'jobs' end,
    case when _ids_only then to_json(_ids) else array_to_json(_jobs) end,
    'looked', _looked, 'looked_to', case when _stopped and not _whole then _last_id end,
    'looked_to_time', case when _stopped and not _whole then _last_time end,
    'full', case when _sort is null then cardinality(_jobs) + cardinality(_ids) = _page else _next is not null end,
    'sorted', _sorted
  );
end
$$;
