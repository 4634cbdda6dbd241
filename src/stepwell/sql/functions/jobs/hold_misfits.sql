-- Hand back running jobs whose args do not fit the code of their worker: an argument is unknown, or a required one is
-- missing. The attempt does not count. Each job waits for a worker with another signature (release_misfits), for
-- _graces[k] seconds from the first misfit. After a run has begun, a later misfit gets a new grace period. Returns the
-- ids refused by the fence, and those whose grace period is over: these are still held, and the caller must fail them.
create or replace function stepwell.hold_misfits(
  _ids uuid[],
  _epochs integer[],
  _signatures integer[],
  _messages text[],
  _graces double precision[],
  out refused uuid[],
  out expired uuid[]
)
language plpgsql volatile security definer
as $$
declare
  _now timestamptz := stepwell.now();
  _known uuid[];
  _cancelling uuid[];
  _held uuid[];
begin
  if (
    array_position(_signatures, null) is null and cardinality(_signatures) = cardinality(_ids)
    and cardinality(_graces) = cardinality(_ids) and 0 <= all (_graces) and 3155760000 >= all (_graces)
  ) is not true and cardinality(_ids) > 0 then
    raise exception using errcode = 'invalid_parameter_value',
      message = 'stepwell: hold_misfits needs a signature, and a grace between 0 and 100 years, for each job';
  end if;
  perform stepwell.lock_to_hand_back(_ids);
  with outcome as (
    select u.id, u.epoch, u.signature, u.message, u.grace
    from unnest(_ids, _epochs, _signatures, _messages, _graces) as u (id, epoch, signature, message, grace)
    order by u.id
  ), judged as materialized (
    select o.id, left(o.message, 1000) as message,
      -- Sorted, so that there are few distinct arrays.
      array(select distinct s.signature from unnest(a.misfits || o.signature) as s (signature) order by 1) as misfits,
      coalesce(a.until, _now + o.grace * interval '1 second') as until
    from outcome o
    join stepwell.job j on j.id = o.id and j.epoch = o.epoch
    cross join lateral (
      select case when j.misfit_epoch = j.epoch - 1 then j.misfits end as misfits,
        case when j.misfit_epoch = j.epoch - 1 then j.misfit_until end as until
    ) a
    where j.id = any (_ids) and j.worker_id is not null
  ), held as (
    -- Due at the end of the grace period: then promote makes it ready for a last attempt by any worker.
    update stepwell.job j
    set state = 'scheduled', run_at = h.until, attempt = j.attempt - 1, worker_id = null, progress = null,
      misfits = h.misfits, misfit_until = h.until, misfit_epoch = j.epoch, misfit = h.message
    from judged h
    where j.id = any (_ids) and j.id = h.id and h.until > _now
    returning j.id, j.cancelling
  )
  select array(select j.id from judged j), array(select j.id from judged j where j.until <= _now),
    (select array_agg(h.id) from held h where h.cancelling), array(select h.id from held h)
  into _known, expired, _cancelling, _held;
  -- Due now, because a worker that may claim them may already be registered.
  perform stepwell.release(
    _handed_back => _held, _due_in => case when cardinality(_held) > 0 then 0 end, _cancelling => _cancelling
  );
  refused := array(select i.id from unnest(_ids) as i (id) except select k.id from unnest(_known) as k (id));
end
$$;
