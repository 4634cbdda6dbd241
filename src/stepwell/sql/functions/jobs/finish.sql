-- End running jobs that succeeded or were cancelled. Returns the ids refused by the fence: no running row has (id,
-- epoch), so the job is no longer that run's. _keeps is in seconds: 0 keeps no row in history, infinity keeps it
-- forever. _keeps and _states have one element for all jobs or one per job. _parent_ids are the parents of those jobs
-- that were spawned. A cancelled job that has steps to compensate runs once more for that, and ends then.
-- _by_queue: whether the setting of the job's queue comes before _keeps; one element for all jobs or one per job.
create or replace function stepwell.finish(
  _ids uuid[],
  _epochs integer[],
  _results text[],
  _keeps double precision[],
  _states stepwell.state[] default '{succeeded}',
  _errors text[] default null,
  _parent_ids uuid[] default null,
  _by_queue boolean[] default null
) returns uuid[]
language plpgsql volatile security definer
as $$
declare
  _undoing uuid[] := '{}';
  _gone record;
begin
  if (
    _states <@ array['succeeded', 'cancelled']::stepwell.state[] and cardinality(_states) in (1, cardinality(_ids))
    and array_position(_keeps, null) is null and cardinality(_keeps) in (1, cardinality(_ids))
    and (_by_queue is null or cardinality(_by_queue) in (1, cardinality(_ids)))
  ) is not true and cardinality(_ids) > 0 then
    raise exception using errcode = 'invalid_parameter_value',
      message = 'stepwell: finish needs _keeps, and _states that are succeeded or cancelled: one for all jobs or one '
        'for each';
  end if;
  if true = any (_by_queue) and exists (select from stepwell.queue_keep) then
    _keeps := stepwell.keeps_by_queue(_ids, _states, _keeps, _by_queue);
  end if;
  if pg_column_size(_results) > 65536 then
    perform stepwell.check_sizes('result', _results);
  end if;
  if 'cancelled' = any (_states) then
    _undoing := stepwell.begin_cancelled_undo(_ids, _epochs, _states, _errors, _parent_ids);
  elsif _parent_ids is not null then
    perform stepwell.lock_family(_ids, _parent_ids, false);
  end if;
  _gone := stepwell.to_history(_ids, _epochs, _states, _keeps, _results, _errors);
  if _gone.unsuccessful is not null or cardinality(_undoing) > 0 then
    perform stepwell.cancel_children(coalesce(_gone.unsuccessful, '{}') || _undoing);
  end if;
  perform stepwell.release(
    _gone.ended, _gone.schedule_ids, _gone.endings, _admitted => _gone.admitted, _members => _gone.members
  );
  if cardinality(_gone.ended) = cardinality(_ids) then
    return '{}';
  end if;
  return array(
    select i.id from unnest(_ids) as i (id) except select a.id from unnest(_gone.ended || _undoing) as a (id)
  );
end
$$;
