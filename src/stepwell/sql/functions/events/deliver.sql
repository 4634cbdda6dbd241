-- Deliver events to the jobs that wait for them, and wake these jobs. Returns the events that must be delivered again,
-- because another session held a lock too long or because the job of a signal may be retried.
-- A job that is about to wait holds the advisory lock of the event's name exclusively while it looks for existing
-- events, until its wait is committed. The delivery holds the lock shared until the event is committed. So one of the
-- two sees the other. _committed: the event is already visible, so the lock is not needed. That caller repeats the
-- delivery later, so the function does not wait for locked jobs.
create or replace function stepwell.deliver(_ids bigint[], _committed boolean) returns bigint[]
language plpgsql volatile
as $$
declare
  _lock record;
  _locks integer := 0;
  _late bigint[] := '{}';
  _waiting uuid[];
  _sent_to uuid[];
  _missed uuid[];
  _ended uuid[];
begin
  if not _committed then
    for _lock in
      select hashtext(e.name || chr(1) || coalesce(e.job_id::text, e.key)) as name, array_agg(e.id) as ids
      from stepwell.event e
      where e.id = any (_ids)
      group by 1
      order by 1
    loop
      -- Advisory locks share the memory of the whole server, so at most 500 are taken. The function waits for only one.
      if _locks < 500 and pg_try_advisory_xact_lock_shared(1937007984, _lock.name) then
        _locks := _locks + 1;
      elsif _locks < 500 and cardinality(_late) = 0 and stepwell.lock_event(_lock.name) then
        _locks := _locks + 1;
      else
        _late := _late || _lock.ids;
      end if;
    end loop;
  end if;
  _waiting := array(select distinct w.job_id from stepwell.waiting_for(_ids) w);
  _sent_to := array(select distinct e.job_id from stepwell.event e where e.id = any (_ids) and e.job_id is not null);
  if cardinality(_waiting) = 0 and cardinality(_sent_to) = 0 then
    return _late;
  end if;
  _missed := stepwell.lock_to_deliver(_waiting, _sent_to, not _committed);
  if cardinality(_missed) > 0 then
    _late := _late || array(
      select w.event_id from stepwell.waiting_for(_ids) w
      where (w.job_id in (select m.id from unnest(_missed) as m (id))) is true
    );
    _waiting := array(select w.id from unnest(_waiting) as w (id) except select m.id from unnest(_missed) as m (id));
  end if;
  if cardinality(_sent_to) > 0 then
    -- Mark the job durable, so that its end deletes unread signals. Locked jobs are skipped: one of them may be saving
    -- a step in a transaction that sends to a job locked here.
    update stepwell.job j set durable = true
    where j.id = any (array(
      select k.id from stepwell.job k
      where k.id = any (_sent_to) and not k.durable
      order by k.id
      for no key update skip locked
    ));
    _missed := _missed || array(select j.id from stepwell.job j where j.id = any (_sent_to) and not j.durable);
    _ended := array(
      select t.id from unnest(_sent_to) as t (id) where not exists (select from stepwell.job j where j.id = t.id)
    );
    if cardinality(_ended) > 0 then
      -- As in stepwell.delete_steps: a job that can be retried may read the signal then.
      update stepwell.event e set expires_at = h.expires_at
      from stepwell.history h
      where e.id = any (_ids) and e.job_id = any (_ended) and h.id = e.job_id and h.state <> 'succeeded';
      delete from stepwell.event e
      where e.id = any (_ids) and e.job_id = any (_ended)
        and not exists (select from stepwell.history h where h.id = e.job_id and h.state <> 'succeeded');
    end if;
    if _committed then
      -- The job was retried at the moment at which it seemed to have ended.
      update stepwell.event e set expires_at = 'infinity'
      where e.id = any (_ids) and e.job_id = any (_sent_to) and e.job_id <> all (_ended) and e.expires_at < 'infinity';
    else
      _missed := _missed || _ended;
    end if;
    _late := _late || array(select e.id from stepwell.event e where e.id = any (_ids) and e.job_id = any (_missed));
  end if;
  if cardinality(_waiting) > 0 then
    perform stepwell.take_events(_waiting, true);
    perform stepwell.wake(_waiting);
  end if;
  return _late;
end
$$;
