-- When a transaction that has emitted events commits: give them to those who wait. Who is about to wait holds the
-- advisory lock of the event's name until it has looked for what is there and is seen to wait; so one of both sees the other.
create or replace function stepwell.deliver_events() returns trigger
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
-- On, whatever the function that calls this has turned off.
set enable_nestloop = on
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
  _sent_to uuid[];
  _ended uuid[];
  _waiting uuid[];
begin
  -- First of all: on a table of the caller's own, to read new would run casts of the caller's own as the owner of this.
  if tg_relid <> 'stepwell.event'::regclass or tg_op <> 'INSERT' or tg_when <> 'AFTER' or tg_level <> 'ROW' then
    raise exception using errcode = 'insufficient_privilege',
      message = 'stepwell: deliver_events is the trigger of the table stepwell.event, and of no other';
  end if;
  -- The first of a transaction's events brings all that were put in after it, so that jobs are locked in one order. The mark
  -- is in the row, where no client can write it, and goes when the savepoint goes in which it was set. It is looked up:
  -- new is the row as it was put in.
  perform from stepwell.event e where e.id = new.id and not e.delivered;
  if not found then
    return null;
  end if;
  update stepwell.event e set delivered = true
  where e.transaction = new.transaction and e.id > new.id and not e.delivered;
  perform pg_advisory_xact_lock_shared(1937007984, l.name)
  from (
    select distinct hashtext(e.name || chr(1) || coalesce(e.job_id::text, e.key)) as name
    from stepwell.event e
    where e.id >= new.id and e.transaction = new.transaction
    order by 1
  ) l;
  _waiting := array(
    select distinct s.job_id
    from stepwell.event e
    join stepwell.step s on s.pending and s.awaited is not null and s.event = e.name and s.event_key = e.key
      and (e.job_id is null and s.kind = 'wait' or s.job_id = e.job_id and s.kind = 'receive')
    where e.id >= new.id and e.transaction = new.transaction
  );
  _sent_to := array(
    select distinct e.job_id from stepwell.event e
    where e.id >= new.id and e.transaction = new.transaction and e.job_id is not null
  );
  perform from stepwell.job j where j.id = any (_waiting) order by j.id for no key update;
  if cardinality(_sent_to) > 0 then
    -- So that it does not end now. No more than that, for two that run may send to each other, and hold themselves.
    perform from stepwell.job j where j.id = any (_sent_to) order by j.id for key share;
    -- Durable, so that its end sees to what is left unread. One that is locked is saving a step, and is durable by that.
    update stepwell.job j set durable = true
    where j.id = any (array(
      select k.id from stepwell.job k
      where k.id = any (_sent_to) and not k.durable
      order by k.id
      for no key update skip locked
    ));
    _ended := array(
      select t.id from unnest(_sent_to) as t (id) where not exists (select from stepwell.job j where j.id = t.id)
    );
  end if;
  if cardinality(_ended) > 0 then
    -- As stepwell.bury_steps would have done: what can be tried again may read it then.
    update stepwell.event e set expires_at = h.expires_at
    from stepwell.history h
    where e.job_id = any (_ended) and e.transaction = new.transaction and h.id = e.job_id and h.state <> 'succeeded';
    delete from stepwell.event e
    where e.job_id = any (_ended) and e.transaction = new.transaction
      and not exists (select from stepwell.history h where h.id = e.job_id and h.state <> 'succeeded');
  end if;
  if cardinality(_waiting) > 0 then
    perform stepwell.take_events(_waiting, true);
    perform stepwell.wake(_waiting);
  end if;
  return null;
end
$$;
