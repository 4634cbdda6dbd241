-- Why a job does not run: the cause in a word, its subject in words, and what a person can do next. until: when the
-- cause ends by itself, at the earliest; jobs: up to three jobs that it waits for. It always returns one row.
-- The cause is the first of what must happen before the job runs. It reads a few rows by index and all workers, so the
-- cost does not grow with the backlog.
create or replace function stepwell.why(
  _id uuid,
  out cause text,
  out subject text,
  out next_act text,
  out until timestamptz,
  out jobs uuid[]
)
language plpgsql stable security definer
as $$
declare
  _most_counted constant integer := 1000;
  _run_now constant text := format('wait, or run it now: stepwell jobs run %s', _id);
  _now timestamptz := stepwell.now();
  _job stepwell.job;
  _ended record;
  _found record;
  _held integer;
  _ahead integer;
  _room double precision;
  _per double precision;
begin
  select j.* into _job from stepwell.job j where j.id = _id;
  if not found then
    select h.state::text as state, h.error into _ended
    from stepwell.history h where h.id = _id and h.expires_at > _now;
    if not found then
      cause := 'not_found';
      subject := format('there is no job %s', _id);
      next_act := 'check the id; jobs that ended are removed after a time';
    else
      cause := 'ended';
      subject := concat_ws(
        ': ', case _ended.state when 'cancelled' then 'it was cancelled' else 'it has ' || _ended.state end, _ended.error
      );
      next_act := case
        when _ended.state = 'succeeded' then format('see its result: stepwell jobs show %s', _id)
        else format('run it again: stepwell jobs retry %s', _id)
      end;
    end if;
    return;
  end if;

  if _job.state = 'running' then
    cause := 'running';
    select w.host, w.pid, w.lease_until > _now as alive into _found from stepwell.worker w where w.id = _job.worker_id;
    if _found.alive then
      subject := format(
        'attempt %s runs on worker %s (%s, pid %s)%s', _job.attempt, _job.worker_id, _found.host, _found.pid,
        case when _job.cancelling then ' and was asked to stop' else '' end
      ) || coalesce(
        (
          select format('; attempt %s failed: %s', f.attempt, left(concat_ws(': ', f.type, nullif(f.message, '')), 1000))
          from stepwell.failure f where f.job_id = _id and f.expires_at > _now
          order by f.epoch desc
          limit 1
        ),
        ''
      );
      next_act := case
        when _job.cancelling then 'wait for its handler to end'
        else format('wait for it to end, or cancel it: stepwell jobs cancel %s', _id)
      end;
    else
      subject := format('its worker %s is dead', _job.worker_id);
      next_act := 'wait for a live worker to rescue it, or start one: stepwell worker MODULE:APP';
    end if;
    return;
  end if;

  if _job.state = 'scheduled' and _job.run_at > _now then
    until := _job.run_at;
    next_act := _run_now;
    select f.attempt, f.type, f.message into _found
    from stepwell.failure f where f.job_id = _id and f.epoch = _job.epoch and f.expires_at > _now
    limit 1;
    if _job.misfits is not null and _job.run_at = _job.misfit_until then
      cause := 'misfit';
      subject := concat_ws(': ', 'its args do not fit the code of the workers', _job.misfit);
      next_act := format('start a worker with code that takes them, or change them: stepwell jobs edit %s --args JSON', _id);
    elsif found then
      cause := 'retry';
      subject := format(
        'attempt %s failed: %s', _found.attempt, left(concat_ws(': ', _found.type, nullif(_found.message, '')), 1000)
      );
    elsif _job.epoch > 0 and _job.cursor is null then
      cause := 'snooze';
      subject := 'its handler asked to run later';
    else
      cause := 'delay';
      subject := 'it is not due yet';
    end if;
    return;
  end if;

  if _job.state = 'waiting' then
    select s.kind, s.key, s.event, nullif(s.event_key, '') as event_key, s.error into _found
    from stepwell.step s
    where s.job_id = _id and s.pending and s.awaited is not null
    order by s.n, s.key
    limit 1;
    select nullif(min(s.until), 'infinity'), (array_agg(s.child_id order by s.n) filter (where s.child_id is not null))[:3],
      count(*) - 1
    into until, jobs, _ahead
    from stepwell.step s where s.job_id = _id and s.pending and s.awaited is not null;
    case
      when _found.event is not null and _found.kind = 'receive' then
        cause := 'signal';
        subject := format('it waits for the signal %s', quote_literal(_found.event));
        next_act := format('send it: stepwell jobs send %s %s', _id, stepwell.shell_word(_found.event));
      when _found.event is not null then
        cause := 'event';
        subject := format('it waits for the event %s', quote_literal(_found.event))
          || coalesce(format(' with key %s', quote_literal(_found.event_key)), '');
        next_act := format('emit it: stepwell emit %s', stepwell.shell_word(_found.event))
          || coalesce(format(' --key %s', stepwell.shell_word(_found.event_key)), '');
      when _found.kind = 'child' then
        cause := 'child';
        subject := format('it waits for the end of its child %s', jobs[1]);
        next_act := format('see why the child has not ended: stepwell jobs why %s', jobs[1]);
      when _found.kind = 'retry' then
        cause := 'retry';
        -- The key is that of the step, and the number of the attempt.
        subject := format('its step %s failed and is tried again', quote_literal(regexp_replace(_found.key, '~\d+$', '')));
        next_act := _run_now;
      when _found.kind is null then
        -- A chain or machine, before its next step.
        cause := 'delay';
        until := nullif(_job.run_at, 'infinity');
        subject := 'it is not due yet';
        next_act := _run_now;
      else
        cause := 'sleep';
        subject := 'it sleeps';
        next_act := 'wait: sleeping is part of its work';
    end case;
    if _ahead > 0 then
      subject := subject || format(', and for %s more', _ahead);
    end if;
    return;
  end if;

  if _job.state = 'blocked' and _job.blocked_by is null then
    jobs := array(
      select j.id from stepwell.job j where (j.state = 'blocked') = false and j.schedule_id = _job.schedule_id limit 3
    );
    cause := 'overlap';
    subject := format(
      'a run before it of the schedule %s has not ended',
      (select quote_literal(s.name) from stepwell.schedule s where s.id = _job.schedule_id)
    );
    next_act := case
      when cardinality(jobs) > 0 then format('see why that run has not ended: stepwell jobs why %s', jobs[1])
      else 'wait: it is next'
    end;
    return;
  end if;

  if _job.state = 'blocked' then
    _ahead := (
      select count(*) from (
        select from stepwell.job j
        where j.blocked_by = _job.blocked_by and (j.rank, j.run_at, j.id) < (_job.rank, _job.run_at, _job.id)
        limit _most_counted
      ) a
    );
    select coalesce(s.most, (l.rule ->> 'most')::integer) as most, s.most is not null as most_is_set,
      coalesce(s.spacing, (r.rule ->> 'interval')::double precision) as spacing,
      coalesce(s.burst, (r.rule ->> 'burst')::integer) as burst, r.rule is not null as has_rate,
      l.rule is not null as has_limit, b.closed_until, b.used, b.used_at,
      stepwell.shell_word(_job.blocked_by) as key
    into _found
    from (select _job.blocked_by as key) k
    left join stepwell.key_setting s on s.key = k.key
    left join stepwell.bucket b on b.key = k.key
    left join lateral (
      select e.rule from json_array_elements(_job.admission -> 'limits') as e (rule)
      where e.rule ->> 'key' = k.key limit 1
    ) l on true
    left join lateral (
      select e.rule from json_array_elements(_job.admission -> 'rates') as e (rule)
      where e.rule ->> 'key' = k.key limit 1
    ) r on true;
    if _found.has_limit then
      _held := (
        select count(*) from (
          select from stepwell.permit p where p.key = _job.blocked_by and not p.rate limit _found.most + 1
        ) p
      );
      if _found.most - _held <= _ahead then
        jobs := array(
          select p.job_id from stepwell.permit p where p.key = _job.blocked_by and not p.rate order by p.key, p.rate, p.job_id
          limit 3
        );
        cause := 'limit';
        subject := concat_ws(
          '; ',
          format(
            'the key %s has a limit of %s%s', quote_literal(_job.blocked_by), _found.most,
            case when _found.most_is_set then ', set at run time' else '' end
          ),
          (
            select 'held by ' || string_agg(format('%s (%s)', u.id, j.state), ', ' order by u.n)
              || case when _held > 3 then format(' and %s more', _held - 3) else '' end
            from unnest(jobs) with ordinality as u (id, n) join stepwell.job j on j.id = u.id
          ),
          case when _ahead > 0 then format('%s%s ahead in line', _ahead, case when _ahead = _most_counted then '+' else '' end) end
        );
        next_act := case
          when cardinality(jobs) > 0 then format('see why it has not ended: stepwell jobs why %s; or ', jobs[1])
          else ''
        end || format('raise the limit: stepwell limits set %s --most %s', _found.key, _found.most + 1);
        return;
      end if;
    end if;
    if _found.has_rate then
      if _found.closed_until > _now then
        cause := 'rate';
        until := _found.closed_until;
        subject := format('the rate of the key %s is closed: a handler was told to slow down', quote_literal(_job.blocked_by));
        next_act := 'wait until it opens';
        return;
      end if;
      _held := (
        select count(*) from (
          select from stepwell.permit p where p.key = _job.blocked_by and p.rate limit _found.burst + 1
        ) p
      );
      -- As stepwell.room_of, which needs the lock of the key, counts it.
      _room := _found.burst - _held + 1e-6 - coalesce(
        greatest(0, _found.used - greatest(0, extract(epoch from _now - _found.used_at)) / _found.spacing), 0
      );
      if floor(_room) <= _ahead then
        cause := 'rate';
        -- Beyond this, the time would not fit.
        until := _now + least(3155760000, (_ahead + 1 - _room) * _found.spacing) * interval '1 second';
        _per := case when _found.spacing <= 1 then 1 when _found.spacing <= 60 then 60 else 3600 end;
        subject := concat_ws(
          '; ',
          format(
            'the key %s has a rate of %s per %s', quote_literal(_job.blocked_by), round((_per / _found.spacing)::numeric, 2)::double precision,
            case _per when 1 then 'second' when 60 then 'minute' else 'hour' end
          ),
          case when _ahead > 0 then format('%s%s ahead in line', _ahead, case when _ahead = _most_counted then '+' else '' end) end
        );
        next_act := format('wait, or raise the rate: stepwell limits set %s --rate COUNT/s', _found.key);
        return;
      end if;
    end if;
  end if;

  -- From here on, a worker could run it now.
  select c.scope, c.name into _found
  from stepwell.control c
  where c.action = 'pause' and (
    c.scope = 'everything' or (c.scope = 'queue' and c.name = _job.queue) or (c.scope = 'task' and c.name = _job.task)
  )
  limit 1;
  if found then
    cause := 'paused';
    subject := case _found.scope when 'everything' then 'everything' else format('the %s %s', _found.scope, quote_literal(_found.name)) end
      || ' is paused';
    next_act := 'resume it: stepwell resume ' || case _found.scope
      when 'everything' then '--all' when 'task' then '--task ' || stepwell.shell_word(_found.name) else stepwell.shell_word(_found.name)
    end;
    return;
  end if;

  select s.most, s.spacing, r.next_in,
    (
      select count(*) from (
        select from stepwell.permit p where p.key = stepwell.queue_key(s.name) and not p.rate limit s.most
      ) p
    ) + r.uncounted >= s.most as full
  into _found
  from stepwell.queue_setting s cross join lateral stepwell.queue_room(s.name, _now) r
  where s.name = _job.queue and r.room <= 0 and _job.state = 'ready';
  if found and _found.full then
    jobs := array(
      select p.job_id from stepwell.permit p
      where p.key = stepwell.queue_key(_job.queue) and not p.rate
      order by p.key, p.rate, p.job_id
      limit 3
    );
    cause := 'limit';
    subject := format('the queue %s has a limit of %s', quote_literal(_job.queue), _found.most)
      || coalesce('; held by ' || array_to_string(nullif(jobs, '{}'), ', '), '')
      || case when _found.most > 3 then ' and others' else '' end;
    next_act := format(
      'wait for a job of the queue to end, or raise the limit: stepwell queues set %s --limit %s',
      stepwell.shell_word(_job.queue), _found.most + 1
    );
    return;
  elsif found then
    cause := 'rate';
    until := _now + _found.next_in * interval '1 second';
    subject := format('the rate of the queue %s is used up', quote_literal(_job.queue));
    next_act := format(
      'wait, or raise the rate: stepwell queues set %s --rate COUNT/s', stepwell.shell_word(_job.queue)
    );
    return;
  end if;

  with worker as materialized (
    select w.id, w.concurrency,
      w.tasks ? _job.task as knows,
      exists (
        select from unnest(w.queues) as q (name)
        where q.name = _job.queue or (right(q.name, 1) = '*' and starts_with(_job.queue, left(q.name, -1)))
      ) as serves,
      coalesce(_job.owner is null or w.named is null or (w.named and w.owner = _job.owner), false) as owns,
      coalesce(_job.misfits is null or _job.misfit_until <= _now or not (_job.misfits && w.signatures), false) as fits,
      exists (select from stepwell.stopping_workers s where s.id = w.id) as stopping,
      exists (
        select from stepwell.control c where c.action = 'pause' and c.scope = 'worker' and c.name = w.id::text
      ) as paused
    from stepwell.worker w
    where w.lease_until > _now
  ), able as materialized (
    select w.id, w.concurrency, w.stopping, w.paused from worker w where w.knows and w.serves and w.owns and w.fits
  )
  select count(*) as alive, count(*) filter (where w.knows) as knowing,
    count(*) filter (where w.knows and w.serves) as serving,
    count(*) filter (where w.knows and w.serves and w.owns) as owning,
    (select count(*) from able) as able,
    (select count(*) from able a where not a.stopping) as staying,
    (select count(*) from able a where not a.stopping and not a.paused) as open,
    (select min(a.id::text) from able a where not a.stopping and a.paused) as paused,
    (select sum(a.concurrency) from able a where not a.stopping and not a.paused) as slots,
    (
      select bool_and(
        a.concurrency <= (
          select count(*) from (
            select from stepwell.job j where j.state = 'running' and j.worker_id = a.id limit a.concurrency
          ) r
        )
      )
      from able a where not a.stopping and not a.paused
    ) as busy
  into _found
  from worker w;
  case
    when _found.alive = 0 then
      cause := 'no_worker';
      subject := 'no worker is alive';
      next_act := 'start one: stepwell worker MODULE:APP';
    when _found.knowing = 0 then
      cause := 'no_worker_for_task';
      subject := format('no live worker knows the task %s', quote_literal(_job.task));
      next_act := 'start a worker whose app has that task; stepwell workers lists the tasks of each';
    when _found.serving = 0 then
      cause := 'no_worker_for_queue';
      subject := format('no live worker that knows its task claims from the queue %s', quote_literal(_job.queue));
      next_act := format('start one: stepwell worker MODULE:APP --queue %s', stepwell.shell_word(_job.queue));
    when _found.owning = 0 then
      cause := 'no_worker_for_owner';
      subject := format('no live worker belongs to the app %s', quote_literal(_job.owner));
      next_act := format('start a worker of the app whose name is %s', quote_literal(_job.owner));
    when _found.able = 0 then
      cause := 'misfit';
      until := _job.misfit_until;
      subject := concat_ws(': ', 'its args do not fit the code of the workers', _job.misfit);
      next_act := format('start a worker with code that takes them, or change them: stepwell jobs edit %s --args JSON', _id);
    when _found.staying = 0 then
      cause := 'no_worker';
      subject := 'every live worker that may run it is stopping';
      next_act := 'start one: stepwell worker MODULE:APP';
    when _found.open = 0 then
      cause := 'paused';
      subject := format('every worker that may run it is paused, such as %s', _found.paused);
      next_act := format('resume it: stepwell resume --worker %s', _found.paused);
    when _job.state <> 'ready' then
      cause := case when _job.state = 'blocked' then 'limit' else 'delay' end;
      subject := case
        when _job.state = 'blocked' then format('the key %s has room for it', quote_literal(_job.blocked_by))
        else 'it is due'
      end;
      next_act := 'wait: a worker makes it ready';
    when _found.busy then
      cause := 'busy';
      subject := format(
        'all slots are busy: %s in %s', _found.slots,
        case when _found.open = 1 then 'one worker' else format('%s workers', _found.open) end
      );
      next_act := 'wait for a job to end, or start more workers';
    else
      cause := 'ready';
      subject := 'it is ready, and a worker has room';
      next_act := 'wait: jobs before it in the queue go first';
  end case;
end
$$;
