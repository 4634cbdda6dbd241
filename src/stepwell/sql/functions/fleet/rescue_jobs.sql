-- Fail the jobs of dead workers, through stepwell.fail, and delete their registrations.
-- A worker is dead when its lease has ended, or when two looks at least _patience seconds apart have found its advisory
-- lock free. With less patience, a reconnect, as after a restart of Postgres, would count as a death.
-- A lease also ends when the clock is set forward. So while the lock is held, a worker whose lease has ended is dead
-- only after two looks half a lease apart without a renewal in between; a worker renews at least every third of a
-- lease. Any role can hold the lock, and gains no more than this delay.
-- stepwell.rescue_unregistered rescues the jobs of workers that are not registered.
-- At most _limit workers are rescued from at once. Returns the jobs, as stepwell.fail_held does.
create or replace function stepwell.rescue_jobs(_patience double precision default 1, _limit integer default 20)
returns table (job_id uuid, task text, queue text, attempt integer, message text, failed boolean)
language plpgsql volatile security definer
as $$
declare
  _now timestamptz := stepwell.now();
  _worker record;
  _free boolean;
  _dead uuid[] := '{}';
  _messages text[] := '{}';
  _tasks jsonb[] := '{}';
begin
  for _worker in
    select w.id, w.number, w.host, w.pid, w.tasks, w.renewed_at, w.lease_until, w.lock_held, w.lock_missing_since,
      w.overdue_since
    from stepwell.worker w
    where w.lock_held or w.lease_until <= _now or w.renewed_at > _now + interval '1 second'
    order by w.id
  loop
    if _worker.lease_until > _now then
      -- The clock was set back since the renewal. The lease begins now, or it would last too long.
      if _worker.renewed_at > _now + interval '1 second' then
        update stepwell.worker w
        set renewed_at = _now, lease_until = _now + (w.lease_until - w.renewed_at), lock_missing_since = null
        where w.id = _worker.id and w.renewed_at = _worker.renewed_at and w.lease_until = _worker.lease_until;
        continue when not found;
        _worker.lock_missing_since := null;
      end if;
      continue when not _worker.lock_held;
      -- The worker was overdue only before the clock was set back.
      if _worker.overdue_since is not null then
        update stepwell.worker w set overdue_since = null where w.id = _worker.id;
      end if;
      -- A shared lock, so that two concurrent looks do not take each other for the worker.
      _free := pg_try_advisory_lock_shared(1937007981, _worker.number);
      if _free then
        perform pg_advisory_unlock_shared(1937007981, _worker.number);
      end if;
      -- A time in the future is from before the clock was set back: start counting again.
      if _free <> (_worker.lock_missing_since is not null) or _worker.lock_missing_since > _now then
        update stepwell.worker w set lock_missing_since = case when _free then _now end where w.id = _worker.id;
      end if;
      continue when not _free or _worker.lock_missing_since is null
        or _worker.lock_missing_since > _now - _patience * interval '1 second';
    elsif _worker.lock_held and _worker.lease_until > 'epoch' then
      _free := pg_try_advisory_lock_shared(1937007981, _worker.number);
      if _free then
        perform pg_advisory_unlock_shared(1937007981, _worker.number);
      elsif _worker.overdue_since is null or _worker.overdue_since > _now then
        update stepwell.worker w set overdue_since = _now
        where w.id = _worker.id and w.lease_until = _worker.lease_until;
        continue;
      else
        continue when _worker.overdue_since > _now - (_worker.lease_until - _worker.renewed_at) / 2;
      end if;
    end if;
    -- A concurrent renewal clears lock_missing_since and moves the lease: then the worker is alive.
    update stepwell.worker w set lease_until = 'epoch'
    where w.id = _worker.id and (w.lease_until <= _now or w.lock_missing_since = _worker.lock_missing_since);
    continue when not found;
    _dead := _dead || _worker.id;
    _messages := _messages
      || format('worker %s (pid %s on %s) died while it ran this job', _worker.id, _worker.pid, _worker.host);
    _tasks := _tasks || _worker.tasks;
    exit when cardinality(_dead) >= _limit;
  end loop;

  -- Last, because this locks jobs. The only lock it waits for is that of a schedule, and briefly: no deadlock.
  for _k in 1 .. cardinality(_dead) loop
    return query
      select r.job_id, r.task, r.queue, r.attempt, r.message, r.failed
      from stepwell.remove_worker(_dead[_k], _messages[_k], _tasks[_k]) r;
  end loop;
end
$$;
