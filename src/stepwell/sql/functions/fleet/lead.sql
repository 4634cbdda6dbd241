-- Become the leader of the fleet or renew the leadership. Returns whether this worker leads for the next _lease
-- seconds. A leader whose lease has ended, whose row is gone, or whose session has lost its advisory lock is replaced.
-- Every duty of the leader is idempotent, so two leaders at once do no harm.
create or replace function stepwell.lead(_worker_id uuid, _lease double precision default 5) returns boolean
language plpgsql volatile security definer
as $$
declare
  _now timestamptz := stepwell.now();
  _until timestamptz := _now + _lease * interval '1 second';
  _leader record;
  _free boolean := false;
begin
  -- A worker that was declared dead or never registered cannot lead.
  if _until is null or not exists (select from stepwell.worker w where w.id = _worker_id) then
    return false;
  end if;
  update stepwell.leader l set lease_until = _until where l.worker_id = _worker_id;
  if found then
    return true;
  end if;
  select l.worker_id, l.lease_until, w.number, w.lock_held into _leader
  from stepwell.leader l left join stepwell.worker w on w.id = l.worker_id;
  if found then
    if _leader.lock_held then
      _free := pg_try_advisory_lock_shared(1937007981, _leader.number);
      if _free then
        perform pg_advisory_unlock_shared(1937007981, _leader.number);
      end if;
    end if;
    -- A lease that ends too late was granted before the clock was set back.
    if _leader.number is not null and not _free
      and _leader.lease_until between _now and _now + 2 * _lease * interval '1 second'
    then
      return false;
    end if;
    update stepwell.leader l set worker_id = _worker_id, since = _now, lease_until = _until
    where l.worker_id = _leader.worker_id;
    return found;
  end if;
  insert into stepwell.leader (worker_id, since, lease_until) values (_worker_id, _now, _until)
  on conflict on constraint leader_pkey do nothing;
  return found;
end
$$;
