-- Claim up to _limit ready jobs of these queues and tasks for a worker with a live lease.
-- The position (_ranks[k], _run_ats[k], _ids[k]) is the job of _queues[k] after which the claim begins; nulls: the
-- front. _last_ranks[k] is the last rank to claim; null: all ranks.
-- Each queue may give its share first, and the rest comes from queues that had more. The share of the k-th queue is
-- _shares[k] out of the sum of the shares from it on, rounded up; null: equal shares; only zeros: everything.
-- A job with an owner is for workers of the app with that name. A job whose args did not fit some signatures of its
-- task is for workers with another signature.
-- The claim ends with the job that brings the args, metadata and saved steps to _most_bytes. Then the column `more` is
-- true for that job and those picked with it. A job that alone exceeds the limit (stepwell.size_limit) comes without
-- its contents, with its size in `unread`. With _unread, all jobs come without contents: see stepwell.read_claimed.
-- A queue with a limit or rate (stepwell.queue_setting) gives no more jobs than may run. Two claims must not count the
-- same room, so each takes the lock of the queue first. The jobs that are left stay ready, and stepwell.release
-- announces them.
-- The worker's row is locked against rescue, so no job is claimed for a worker that was just declared dead.
-- Parameters and columns have the types that the worker sends and reads, with times as microseconds since 1970. A
-- conversion in the calling statement, which is planned each time, took as long as the claim of one job.
create or replace function stepwell.claim_jobs(
  _worker_id uuid,
  _queues text[],
  _ranks integer[],
  _run_ats bigint[],
  _ids uuid[],
  _tasks text[],
  _limit integer,
  _shares double precision[] default null,
  _most_bytes bigint default 67108864,
  _unread boolean default false,
  _last_ranks integer[] default null
) returns table (
  id text,
  queue text,
  task text,
  args text,
  metadata text,
  epoch integer,
  attempt integer,
  rank smallint,
  run_at bigint,
  scheduled_for bigint,
  parent_id text,
  journal text,
  max_attempts integer,
  unread bigint,
  more boolean,
  policy text
)
language plpgsql volatile security definer
as $$
declare
  _now timestamptz := stepwell.now();
  _any_owner boolean;
  _owner text;
  _signatures integer[];
  _paused boolean;
  _paused_queues text[];
  _paused_tasks text[];
  _many_tasks jsonb;
  _open integer[];
  _full integer[];
  _left integer := _limit;
  _share integer;
  _got integer;
  _k integer;
  _ahead double precision;
  _rank integer;
  _run_at timestamptz;
  _id uuid;
  _last_rank integer;
  _bytes bigint := _most_bytes;
  _picked tid[];
  _sizes bigint[];
  _size bigint;
  _largest bigint;
  _left_out uuid[];
  _left_out_sizes bigint[];
  _more boolean;
  _keyed uuid[];
  _limited text[];
  _in_limited boolean;
  _room record;
begin
  select w.named is null, case when w.named then w.owner end, w.signatures into _any_owner, _owner, _signatures
  from stepwell.worker w where w.id = _worker_id and w.lease_until > _now for key share;
  if not found then
    raise exception using errcode = 'SW001', message = format('stepwell: worker %s has no lease', _worker_id);
  end if;

  select bool_or(c.scope = 'everything' or (c.scope = 'worker' and c.name = _worker_id::text)),
    array_agg(c.name) filter (where c.scope = 'queue'), array_agg(c.name) filter (where c.scope = 'task'),
    (select array_agg(s.name) from stepwell.queue_setting s)
  into _paused, _paused_queues, _paused_tasks, _limited
  from stepwell.control c where c.action = 'pause';
  if _paused then
    return;
  end if;
  if _paused_tasks is not null then
    _tasks := array(
      select t.name from unnest(_tasks) as t (name) except select p.name from unnest(_paused_tasks) as p (name)
    );
    -- Otherwise the claim would walk over every ready job.
    if cardinality(_tasks) = 0 then
      return;
    end if;
  end if;
  if _paused_queues is null then
    _open := case when cardinality(_queues) = 1 then '{1}' else array(select generate_subscripts(_queues, 1)) end;
  else
    select array_agg(k.k::integer order by k.k) into _open
    from unnest(_queues) with ordinality as k (name, k)
    where (k.name in (select p.name from unnest(_paused_queues) as p (name))) is not true;
  end if;
  if _limited is not null then
    _limited := array(select l.name from unnest(_limited) as l (name) where l.name = any (_queues));
    perform from stepwell.key_lock l
    where l.stripe = any (array(select 256 + (hashtext(q.name) & 255) from unnest(_limited) as q (name)))
    order by l.stripe
    for no key update;
    -- Not before the claims that have held the locks meanwhile.
    _now := stepwell.now();
  end if;
  -- A search in an array is linear, and in the keys of a jsonb object binary.
  if cardinality(_tasks) > 40 then
    _many_tasks := jsonb_object(array_remove(_tasks, null), array_remove(_tasks, null));
  end if;

  <<rounds>>
  while _left > 0 and cardinality(_open) > 0 loop
    _full := '{}';
    _ahead := cardinality(_open);
    if _shares is not null then
      select sum(coalesce(_shares[o.k], 1)) into _ahead from unnest(_open) as o (k);
    end if;
    foreach _k in array _open loop
      exit when _left <= 0;
      _share := case when _ahead > 0 then least(_left, ceil(_left * coalesce(_shares[_k], 1) / _ahead)) else _left end;
      _ahead := _ahead - coalesce(_shares[_k], 1);
      if _share <= 0 then
        -- This queue has no share until the others have given theirs.
        _full := _full || _k;
        continue;
      end if;
      _in_limited := false;
      if _limited is not null and _queues[_k] = any (_limited) then
        _in_limited := true;
        _room := stepwell.queue_room(_queues[_k], _now);
        if _room.uncounted > 0 then
          perform stepwell.count_running(_queues[_k]);
          _room := stepwell.queue_room(_queues[_k], _now);
        end if;
        _share := least(_share, _room.room);
        if _share <= 0 then
          if _room.next_in is not null then
            perform stepwell.use_queue_tokens(_queues[_k], 0, _now, true);
          end if;
          continue;
        end if;
        if _room.uncounted = 0 then
          -- A claim that began before the limit was set has ended a minute after one that has seen it. Skip locked, so
          -- that no claim waits for a person who changes the limit.
          update stepwell.queue_setting s set seen_at = coalesce(s.seen_at, _now), all_counted = s.seen_at is not null
          where s.name = (
            select q.name from stepwell.queue_setting q
            where q.name = _queues[_k] and not q.all_counted
              and (q.seen_at is null or q.seen_at < _now - interval '1 minute')
            for update skip locked
          );
        end if;
      end if;
      _rank := coalesce(_ranks[_k], -32768);
      -- Any role can notify, so a worker may pass any number: clamp it to the range of stepwell.microseconds.
      _run_at := case
        when _run_ats[_k] is null then '-infinity'
        else 'epoch'::timestamptz
          + greatest(-188000000000000000, least(6000000000000000000, _run_ats[_k])) * interval '1 microsecond'
      end;
      _id := coalesce(_ids[_k], '00000000-0000-0000-0000-000000000000');
      _last_rank := coalesce(_last_ranks[_k], 32767);
      if _in_limited then
        -- From the front: jobs that were announced while there was no room go first.
        _rank := -32768;
        _run_at := '-infinity';
        _id := '00000000-0000-0000-0000-000000000000';
        _last_rank := 32767;
      end if;
      select array_agg(p.ctid), array_agg(p.size), sum(p.size), max(p.size),
        array_agg(p.id) filter (where p.keyed or _in_limited)
      into _picked, _sizes, _size, _largest, _keyed
      from (
        select j.ctid, j.id,
          -- A limit is not noted by its claim: the job has its permit already.
          case
            when j.admission is null then false
            else j.fair is not null or j.admission -> 'rates' is not null
              or j.admission #>> '{unique,until_start}' = 'true'
          end as keyed,
          stepwell.json_size(j.args) + coalesce(pg_column_size(j.metadata), 0)
          + case
            when j.durable then coalesce(stepwell.json_size(j.input), 0) + stepwell.saved_size(j.id) else 0
          end as size
        from stepwell.job j
        where j.state = 'ready' and j.queue = _queues[_k]
          and case when _many_tasks is null then j.task = any (_tasks) else _many_tasks ? j.task end
          and (j.rank, j.run_at, j.id) > (_rank, _run_at, _id) and j.rank <= _last_rank
          and (j.owner is null or j.owner = _owner or _any_owner)
          and (j.misfits is null or j.misfit_until <= _now or not (j.misfits && _signatures))
        order by j.rank, j.run_at, j.id
        limit _share
        for no key update skip locked
      ) p;
      continue when _picked is null;
      if _keyed is not null then
        -- Not before the jobs were admitted, which may have been after this call began.
        _now := stepwell.now();
      end if;
      if _size >= _bytes then
        -- The other rows that were picked are only locked.
        select array_agg(u.ctid), array_agg(u.size), sum(u.size) into _picked, _sizes, _size
        from (
          select n.ctid, n.size, sum(n.size) over (rows unbounded preceding) - n.size as before
          from unnest(_picked, _sizes) as n (ctid, size)
        ) u
        where u.before < _bytes;
        _more := true;
      end if;
      _left_out := null;
      if _largest > 65536 or _unread then
        select array_agg(j.id), array_agg(u.size) into _left_out, _left_out_sizes
        from unnest(_picked, _sizes) as u (ctid, size)
        join stepwell.job j on j.ctid = u.ctid
        where _unread or u.size > (select l.bytes from stepwell.size_limit l where l.name = 'job');
      end if;
      return query
        update stepwell.job j
        set state = 'running', worker_id = _worker_id, epoch = j.epoch + 1, attempt = j.attempt + 1, claimed_at = _now
        where j.ctid = any (_picked)
        returning j.id::text, j.queue, j.task,
          case when _left_out is null or j.id <> all (_left_out) then j.args::text end,
          case when _left_out is null or j.id <> all (_left_out) then j.metadata::text end,
          j.epoch, j.attempt, j.rank, (extract(epoch from j.run_at) * 1000000)::bigint,
          (extract(epoch from j.scheduled_for) * 1000000)::bigint, j.parent_id::text,
          case
            when j.durable and (_left_out is null or j.id <> all (_left_out))
            then stepwell.journal(j.id, j.cursor, j.input, j.undoing, j.life, j.steps_counted)
          end,
          j.max_attempts,
          case when _left_out is not null then _left_out_sizes[array_position(_left_out, j.id)] end,
          _more, j.policy::text;
      get diagnostics _got = row_count;
      if _in_limited then
        -- Of jobs with an admission, stepwell.release takes the permits back. As a statement of its own, so that claims
        -- from other queues do not pay for it.
        update stepwell.job j set admission = '{}'
        where j.id = any (_keyed) and j.worker_id = _worker_id and j.admission is null;
        insert into stepwell.permit (key, job_id, rate, hold)
        select stepwell.queue_key(_queues[_k]), j.id, false, false
        from stepwell.job j
        where j.id = any (_keyed) and j.worker_id = _worker_id
        on conflict do nothing;
        if _room.next_in is not null then
          perform stepwell.use_queue_tokens(_queues[_k], _got, _now, _got >= _room.room);
        end if;
      end if;
      if _keyed is not null then
        perform stepwell.note_claimed(_keyed, _now);
      end if;
      exit rounds when _more;
      _left := _left - _got;
      _bytes := _bytes - _size;
      if _got = _share then
        _full := _full || _k;
      end if;
    end loop;
    _open := _full;
  end loop;
end
$$;
