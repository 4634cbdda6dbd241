-- Why a job does not run that a worker could run now: for stepwell.why.
create or replace function stepwell.why_ready(
  _job stepwell.job,
  out cause text,
  out subject text,
  out next_act text,
  out until timestamptz,
  out jobs uuid[]
)
language plpgsql stable
as $$
declare
  _now timestamptz := stepwell.now();
  _found record;
  _meant text;
begin
  select c.scope, c.name into _found
  from stepwell.control c
  where c.action = 'pause' and (
    c.scope = 'everything' or (c.scope = 'queue' and c.name = _job.queue) or (c.scope = 'task' and c.name = _job.task)
  )
  limit 1;
  if found then
    cause := 'paused';
    subject := case _found.scope
      when 'everything' then 'everything'
      else format('the %s %s', _found.scope, quote_literal(_found.name))
    end || ' is paused';
    next_act := 'resume it: stepwell resume ' || case _found.scope
      when 'everything' then '--all'
      when 'task' then '--task ' || stepwell.shell_word(_found.name)
      else stepwell.shell_word(_found.name)
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
      _meant := stepwell.nearest_name(
        _job.task,
        array(
          select t.name from stepwell.worker w cross join lateral jsonb_object_keys(w.tasks) as t (name)
          where w.lease_until > _now
        )
      );
      subject := format('no live worker knows the task %s', quote_literal(_job.task))
        || coalesce(': did you mean ' || quote_literal(_meant) || '?', '');
      next_act := case
        when _meant is null then ''
        else format('if so, cancel it and enqueue that task: stepwell jobs cancel %s; if not, ', _job.id)
      end || 'start a worker whose app has that task; stepwell workers lists the tasks of each';
    when _found.serving = 0 then
      cause := 'no_worker_for_queue';
      _meant := stepwell.nearest_name(
        _job.queue,
        array(
          select q.name from stepwell.worker w cross join lateral unnest(w.queues) as q (name)
          -- A pattern is no queue that the job could move to.
          where w.lease_until > _now and w.tasks ? _job.task and right(q.name, 1) <> '*'
        )
      );
      subject := format('no live worker that knows its task claims from the queue %s', quote_literal(_job.queue))
        || coalesce(': did you mean ' || quote_literal(_meant) || '?', '');
      next_act := case
        when _meant is null then 'start one: '
        else format(
          'if so, move it there: stepwell jobs move %s --to %s; if not, start a worker for its queue: ', _job.id,
          stepwell.shell_word(_meant)
        )
      end || format('stepwell worker MODULE:APP --queue %s', stepwell.shell_word(_job.queue));
    when _found.owning = 0 then
      cause := 'no_worker_for_owner';
      subject := format('no live worker belongs to the app %s', quote_literal(_job.owner));
      next_act := format('start a worker of the app whose name is %s', quote_literal(_job.owner));
    when _found.able = 0 then
      cause := 'misfit';
      until := _job.misfit_until;
      subject := concat_ws(': ', 'its args do not fit the code of the workers', _job.misfit);
      next_act := format(
        'start a worker with code that takes them, or change them: stepwell jobs edit %s --args JSON', _job.id
      );
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
