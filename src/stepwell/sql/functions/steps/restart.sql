-- Start running jobs again, now, with new args, no steps, fresh attempts and a new life. Their children continue by
-- themselves. Events that were taken stay marked as taken while they are kept. Returns the ids refused by the fence.
create or replace function stepwell.restart(_ids uuid[], _epochs integer[], _args text[]) returns uuid[]
language plpgsql volatile security definer
as $$
declare
  _now timestamptz := stepwell.now();
  _accepted uuid[];
  _cancelling uuid[];
  _places stepwell.place[];
begin
  if (cardinality(_args) = cardinality(_ids) and array_position(_args, null) is null) is not true
    and cardinality(_ids) > 0
  then
    raise exception using errcode = 'invalid_parameter_value', message = 'stepwell: each job needs its args';
  end if;
  perform stepwell.check_values(_args);
  perform stepwell.check_sizes('args', _args);
  perform stepwell.lock_to_hand_back(_ids);
  with restarted as (
    update stepwell.job j
    set args = u.args::json, state = 'ready', run_at = _now, attempt = 0, worker_id = null, cursor = null, input = null,
      progress = null, awaits = null,
      -- A durable job is claimed with its journal, which carries the life.
      life = j.life + 1, steps_counted = 0, durable = true
    from unnest(_ids, _epochs, _args) as u (id, epoch, args)
    where j.id = any (_ids) and j.id = u.id and j.epoch = u.epoch and j.worker_id is not null
    returning j.id, j.queue, j.rank, j.run_at, j.cancelling
  )
  select array_agg(r.id), array_agg(r.id) filter (where r.cancelling),
    array_agg(row(r.queue, r.rank, r.run_at)::stepwell.place)
  into _accepted, _cancelling, _places
  from restarted r;
  delete from stepwell.step s
  where s.job_id = any (_accepted)
    -- As a join, this would read all events.
    and (select true from stepwell.event e where e.id = s.event_id and e.job_id is null) is null;
  update stepwell.step s
  set kind = 'taken', key = 'taken/' || s.event_id, value = null, large = false, awaited = null
  where s.job_id = any (_accepted) and s.kind <> 'taken';
  delete from stepwell.large_value v where v.job_id = any (_accepted);
  perform stepwell.release(_handed_back => _accepted, _places => _places, _cancelling => _cancelling);
  return array(select i.id from unnest(_ids) as i (id) except select a.id from unnest(_accepted) as a (id));
end
$$;
