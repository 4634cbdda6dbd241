-- Hand back, without counting an attempt, the jobs that a worker holds without knowing it: their claim was committed,
-- but the reply was lost. (_ids, _epochs) are the jobs that the worker knows. Returns the ids of the others; null if a
-- claim is still in progress on a lost connection: ask again. Claims wait for this call, so a job that another session
-- has locked too long is left for the next call.
create or replace function stepwell.hand_back_unknown(_worker_id uuid, _ids uuid[], _epochs integer[]) returns uuid[]
language plpgsql volatile security definer
set lock_timeout = '250ms'
as $$
declare
  _unknown uuid[];
  _at integer[];
  _given uuid[] := '{}';
begin
  perform from stepwell.worker w where w.id = _worker_id for update skip locked;
  if not found then
    return null;
  end if;
  with held as materialized (
    select j.id, j.epoch from stepwell.job j where j.worker_id = _worker_id and j.state = 'running'
  )
  select array_agg(h.id), array_agg(h.epoch) into _unknown, _at
  from held h
  where not exists (select from unnest(_ids, _epochs) as k (id, epoch) where k.id = h.id and k.epoch = h.epoch);
  if _unknown is null then
    return '{}';
  end if;
  begin
    perform stepwell.snooze(_unknown, _at, array_fill(0::double precision, array[cardinality(_unknown)]));
    return _unknown;
  exception when lock_not_available then
    null;
  end;
  for _k in 1 .. cardinality(_unknown) loop
    begin
      perform stepwell.snooze(_unknown[_k : _k], _at[_k : _k], '{0}');
      _given := _given || _unknown[_k];
    exception when lock_not_available then
      continue;
    end;
  end loop;
  return _given;
end
$$;
