-- Delete waits of a running job that its handler has abandoned, before they take events meant for other waits. A signal
-- that one of them has taken meanwhile is put back. False: refused by the fence.
create or replace function stepwell.forget_waits(_id uuid, _epoch integer, _keys text[]) returns boolean
language plpgsql volatile security definer
as $$
begin
  if not stepwell.still_held(_id, _epoch) then
    return false;
  end if;
  with forgotten as (
    delete from stepwell.step s
    where s.job_id = _id and s.key = any (_keys) and s.kind in ('wait', 'receive')
    returning s.kind, s.key, s.event, s.event_id, s.large, s.value
  ), moved as (
    delete from stepwell.large_value v
    using forgotten f
    where v.job_id = _id and v.key = f.key and f.large
    returning v.key, v.value
  )
  insert into stepwell.event (id, emitted_at, expires_at, large, job_id, name, key, value)
  overriding system value
  -- With its old id, so that it is still first in line.
  select f.event_id, stepwell.now(), 'infinity', f.large, _id, f.event, '', coalesce(m.value, f.value)
  from forgotten f
  left join moved m on m.key = f.key
  where f.kind = 'receive' and f.event_id is not null
  order by f.event_id;
  return true;
end
$$;
