-- Give the waits of these jobs the events that are already there: to each wait the oldest event that its job has not
-- taken yet. The caller has locked the jobs. Returns the jobs for which another transaction may be about to commit an
-- event: look again (look_again). _emitting: the caller delivers events, and the waits are already committed.
create or replace function stepwell.take_events(_job_ids uuid[], _emitting boolean) returns uuid[]
language plpgsql volatile
as $$
declare
  _now timestamptz := stepwell.now();
  _wait record;
  _event record;
  _unsure uuid[] := '{}';
  _locks integer := 0;
  _sure boolean;
begin
  for _wait in
    select s.job_id, s.key, s.kind, s.event, s.event_key, s.until
    from stepwell.step s
    where s.job_id = any (_job_ids) and s.pending and s.event is not null and s.awaited is not null
    order by s.job_id, s.n
  loop
    -- At most 500, as in stepwell.deliver. Without the lock, which any role can hold, existing events are still taken.
    _sure := _emitting or _locks < 500 and pg_try_advisory_xact_lock(1937007984, hashtext(
      _wait.event || chr(1) || case when _wait.kind = 'receive' then _wait.job_id::text else _wait.event_key end
    ));
    _locks := _locks + 1;
    if _wait.kind = 'receive' then
      delete from stepwell.event e
      where e.id = (
        select f.id from stepwell.event f
        where f.job_id = _wait.job_id and f.name = _wait.event
          -- A signal sent after the time limit is too late.
          and (_wait.until is null or f.emitted_at <= _wait.until)
        order by f.id limit 1
      )
      returning e.id, e.large, e.value into _event;
      if _event.large then
        insert into stepwell.large_value (job_id, expires_at, key, value)
        values (_wait.job_id, 'infinity', _wait.key, _event.value)
        on conflict (job_id, key) do update set value = excluded.value;
      end if;
    else
      -- A large value stays in stepwell.event, and every step that takes it refers to it.
      select e.id, e.large, case when not e.large then e.value end as value into _event
      from stepwell.event e
      where e.job_id is null and e.name = _wait.event and e.key = _wait.event_key
        and (_wait.until is null or e.emitted_at <= _wait.until)
        and (e.expires_at > _now or e.transaction = pg_current_xact_id() or _emitting and e.late is not null)
        and not exists (select from stepwell.step t where t.job_id = _wait.job_id and t.event_id = e.id)
      order by e.id
      limit 1;
      if _event.large then
        -- Otherwise the event could be pruned before the step that refers to it is visible.
        perform from stepwell.event e where e.id = _event.id for key share;
        if not found then
          _event.id := null;
        end if;
      end if;
    end if;
    if _event.id is null then
      _unsure := case when _sure then _unsure else _unsure || _wait.job_id end;
      continue;
    end if;
    update stepwell.step s
    set pending = false, event_id = _event.id, large = _event.large, saved_at = _now,
      seconds = greatest(extract(epoch from _now - s.saved_at), 0),
      value = case when not _event.large then _event.value end
    where s.job_id = _wait.job_id and s.key = _wait.key;
  end loop;
  return _unsure;
end
$$;
