-- Give the waits of these jobs the events that came before them: each the oldest that its job has not taken yet. The jobs
-- are locked by the caller. Returns those for which an event may be on its way at this moment, in a transaction that
-- is about to commit: they must look again. _emitting: the caller is such a transaction, and holds the lock shared.
create or replace function stepwell.take_events(_job_ids uuid[], _emitting boolean) returns uuid[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
-- On, whatever the function that calls this has turned off.
set enable_nestloop = on
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
  _now timestamptz := stepwell.now();
  _wait record;
  _event record;
  _unsure uuid[] := '{}';
begin
  for _wait in
    select s.job_id, s.key, s.kind, s.event, s.event_key, s.until
    from stepwell.step s
    where s.job_id = any (_job_ids) and s.pending and s.event is not null and s.awaited is not null
    order by s.job_id, s.n
  loop
    if not _emitting and not pg_try_advisory_xact_lock(1937007984, hashtext(
      _wait.event || chr(1) || case when _wait.kind = 'receive' then _wait.job_id::text else _wait.event_key end
    )) then
      _unsure := _unsure || _wait.job_id;
      continue;
    end if;
    if _wait.kind = 'receive' then
      delete from stepwell.event e
      where e.id = (
        select f.id from stepwell.event f
        where f.job_id = _wait.job_id and f.name = _wait.event
          -- What comes later than the limit comes too late.
          and (_wait.until is null or f.emitted_at <= _wait.until)
        order by f.id limit 1
      )
      returning e.id, e.value into _event;
    else
      select e.id, e.value into _event
      from stepwell.event e
      where e.job_id is null and e.name = _wait.event and e.key = _wait.event_key
        and (_wait.until is null or e.emitted_at <= _wait.until)
        and (e.expires_at > _now or e.transaction = pg_current_xact_id())
        and not exists (select from stepwell.step t where t.job_id = _wait.job_id and t.event_id = e.id)
      order by e.id
      limit 1;
    end if;
    continue when _event.id is null;
    update stepwell.step s
    set pending = false, event_id = _event.id, value = _event.value, saved_at = _now
    where s.job_id = _wait.job_id and s.key = _wait.key;
  end loop;
  return _unsure;
end
$$;
