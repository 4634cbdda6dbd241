-- The queues that have ready jobs, looked at in the order of their names until _milliseconds are gone. looked is how many
-- they are, and all says whether those are all. paused has the names of those that are paused, and unclaimed of others
-- that no live worker claims from, at most 100 of each. oldest is the ready job that has been due for longest, and late
-- the one in a queue that is neither. Of a queue, the first job of each rank is read, for at most 50 ranks: the cost
-- does not grow with backlogs.
create or replace function stepwell.backlog(_milliseconds integer) returns json
language plpgsql stable
as $$
declare
  _most constant integer := 100;
  _most_ranks constant integer := 50;
  _last_rank constant smallint := 32767;
  _until timestamptz := clock_timestamp() + least(greatest(coalesce(_milliseconds, 40), 0), 10000) * interval '1 ms';
  -- As keys of objects, because a search in an array is linear.
  _stopped jsonb := (
    select jsonb_object_agg(c.name, null) from stepwell.control c where c.action = 'pause' and c.scope = 'queue'
  );
  _names jsonb;
  _beginnings jsonb;
  _lengths integer[];
  _found record;
  _name text := '';
  _rank smallint := _last_rank;
  _ranks integer := 0;
  _looked integer := 0;
  _all boolean := false;
  _is_paused boolean;
  _is_claimed boolean;
  _paused text[] := '{}';
  _unclaimed text[] := '{}';
  _oldest timestamptz;
  _oldest_queue text;
  _late timestamptz;
  _late_queue text;
begin
  select jsonb_object_agg(p.pattern, null),
    jsonb_object_agg(left(p.pattern, -1), null) filter (where right(p.pattern, 1) = '*'),
    array_agg(distinct length(p.pattern) - 1) filter (where right(p.pattern, 1) = '*')
  into _names, _beginnings, _lengths
  from stepwell.worker w cross join lateral unnest(w.queues) as p (pattern)
  where w.lease_until > stepwell.now();
  loop
    -- The run_at of a job with a fair key is its turn, which may be long before it was enqueued.
    select j.queue, j.rank,
      case when j.fair is null then j.run_at else greatest(j.run_at, j.enqueued_at, j.claimed_at) end as due_at
    into _found
    from stepwell.job j
    where j.state = 'ready' and (j.queue, j.rank) > (_name, _rank)
    order by j.queue, j.rank, j.run_at, j.id
    limit 1;
    if not found then
      _all := true;
      exit;
    end if;
    if _found.queue <> _name then
      exit when _looked > 0 and clock_timestamp() > _until;
      _looked := _looked + 1;
      _ranks := 0;
      _is_paused := coalesce(_stopped ? _found.queue, false);
      _is_claimed := coalesce(_names ? _found.queue, false)
        or exists (select from unnest(_lengths) as l (length) where _beginnings ? left(_found.queue, l.length));
      if _is_paused and cardinality(_paused) < _most then
        _paused := _paused || _found.queue;
      elsif not _is_paused and not _is_claimed and cardinality(_unclaimed) < _most then
        _unclaimed := _unclaimed || _found.queue;
      end if;
    end if;
    if isfinite(_found.due_at) and (_oldest is null or _found.due_at < _oldest) then
      _oldest := _found.due_at;
      _oldest_queue := _found.queue;
    end if;
    if isfinite(_found.due_at) and (_late is null or _found.due_at < _late) and _is_claimed and not _is_paused then
      _late := _found.due_at;
      _late_queue := _found.queue;
    end if;
    _ranks := _ranks + 1;
    _name := _found.queue;
    _rank := case when _ranks < _most_ranks then _found.rank else _last_rank end;
  end loop;
  return json_build_object(
    'looked', _looked, 'all', _all, 'paused', array_to_json(_paused), 'unclaimed', array_to_json(_unclaimed),
    'oldest', case when _oldest is not null then json_build_object('queue', _oldest_queue, 'at', _oldest) end,
    'late', case when _late is not null then json_build_object('queue', _late_queue, 'at', _late) end
  );
end
$$;
