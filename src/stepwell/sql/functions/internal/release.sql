-- Continue whatever waits for runs that ended or were handed back: parents, blocked runs of schedules, processes that
-- await a result. Every function that takes a job from its worker calls this last. _ended, _schedule_ids and _endings
-- are the result of stepwell.to_history. _handed_back are the jobs that left their worker and live on, _places the
-- places of those that are ready, _due_in the seconds until the next of the others is due, and _cancelling those whose
-- cancel was requested while they ran. A job whose undo begins is handed back even if it had no worker.
-- _admitted are the ended jobs that may have permits for limits. Their permits, and those of jobs that are handed back,
-- admit the next jobs in line. A caller whose transaction may stay open sets _at_once to false: a worker admits them
-- then, because this transaction must not hold the locks of the keys.
-- _members are the ended jobs that are members of groups.
create or replace function stepwell.release(
  _ended uuid[] default null,
  _schedule_ids uuid[] default null,
  _endings json default null,
  _handed_back uuid[] default null,
  _places stepwell.place[] default null,
  _due_in double precision default null,
  _cancelling uuid[] default null,
  _admitted uuid[] default null,
  _at_once boolean default true,
  _members stepwell.member_end[] default null
) returns void
language plpgsql volatile
as $$
declare
  _first integer := 1;
  _keyed uuid[];
  _keys text[];
  _queues text[];
begin
  if cardinality(_handed_back) > 0 then
    _keyed := array(select j.id from stepwell.job j where j.id = any (_handed_back) and j.admission is not null);
  end if;
  if _endings is not null then
    perform stepwell.end_children(_endings);
  end if;
  if cardinality(_schedule_ids) > 0 then
    perform stepwell.admit(_schedule_ids);
  end if;
  if cardinality(_admitted) > 0 or cardinality(_keyed) > 0 then
    _keys := stepwell.return_permits(_admitted, _keyed);
    if cardinality(_keyed) > 0 then
      _keys := _keys || stepwell.queue_again(_keyed);
    end if;
    if strpos(array_to_string(_keys, ''), E'\x02') > 0 then
      _queues := array(select substr(k.key, 2) from unnest(_keys) as k (key) where k.key like E'\x02%');
      perform stepwell.notify_queues(_queues);
      _keys := array(select k.key from unnest(_keys) as k (key) where k.key not like E'\x02%');
    end if;
    if not _at_once then
      perform stepwell.notify_blocked(_keys);
    elsif cardinality(_keys) > 0 then
      perform stepwell.admit_keys(_keys);
    end if;
  end if;
  if cardinality(_members) > 0 then
    perform stepwell.count_members(_members, _at_once);
  end if;
  if cardinality(_places) > 0 or _due_in is not null then
    perform stepwell.notify_ready(_places, _due_in);
  end if;
  if cardinality(_cancelling) > 0 then
    perform stepwell.cancel(_cancelling);
  end if;
  if cardinality(_ended) > 0 then
    -- A process that waits for results holds this lock shared. If the exclusive lock is free, no process waits.
    if pg_try_advisory_lock(1937007980, 0) then
      perform pg_advisory_unlock(1937007980, 0);
      return;
    end if;
    -- A payload has less than 8000 bytes; an id and its comma take 37.
    while _first <= cardinality(_ended) loop
      perform stepwell.notify('stepwell_done', array_to_string(_ended[_first : _first + 199], ','));
      _first := _first + 200;
    end loop;
  end if;
end
$$;
