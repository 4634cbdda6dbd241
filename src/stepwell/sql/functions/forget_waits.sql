-- Forget waits of a running job that nobody in it waits for any more, before they take what comes for others. What was sent to
-- the job, and one of them has taken meanwhile, is given back. False: the fence refused.
create or replace function stepwell.forget_waits(_id uuid, _epoch integer, _keys text[]) returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
as $$
begin
  if not stepwell.still_held(_id, _epoch) then
    return false;
  end if;
  with forgotten as (
    delete from stepwell.step s
    where s.job_id = _id and s.key = any (_keys) and s.kind in ('wait', 'receive')
    returning s.kind, s.event, s.event_id, s.value
  )
  insert into stepwell.event (id, emitted_at, expires_at, job_id, name, key, value)
  overriding system value
  -- Under its old number: it is still the first in line.
  select f.event_id, stepwell.now(), 'infinity', _id, f.event, '', f.value
  from forgotten f
  where f.kind = 'receive' and f.event_id is not null
  order by f.event_id;
  return true;
end
$$;
