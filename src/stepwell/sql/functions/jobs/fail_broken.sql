-- Fail a live job whose row a constraint refuses to change, so that it cannot continue. It moves to history as failed
-- and is not undone. The caller has locked the row. _admit: admit the next run of its schedule; stepwell.admit itself
-- does that in a loop. Returns false if there is no such job.
create or replace function stepwell.fail_broken(_id uuid, _message text, _admit boolean default true) returns boolean
language plpgsql volatile
as $$
declare
  _now timestamptz := stepwell.now();
  _keep constant double precision := 2592000;
  _job record;
  _fingerprint uuid;
  _gone record;
begin
  select j.epoch, j.attempt, j.claimed_at, j.worker_id, j.task, j.queue into _job from stepwell.job j where j.id = _id;
  if not found then
    return false;
  end if;
  _fingerprint := stepwell.failure_group_of(_job.task, 'Broken', null);
  insert into stepwell.failure (job_id, expires_at, failed_at, claimed_at, worker_id, epoch, attempt, reason, type,
    message, fingerprint)
  values (_id, stepwell.expiry(_now, _keep), _now, _job.claimed_at, _job.worker_id, _job.epoch, _job.attempt, 'broken',
    'Broken', left(_message, 10000), _fingerprint);
  perform stepwell.note_failures(
    array[_fingerprint], array[_job.task], '{Broken}', '{null}', array[left(_message, 500)], array[_id], '{1}'
  );
  perform stepwell.note_lost(array[_id], array[_job.task], array[_job.queue], 'Broken', _message);
  _gone := stepwell.to_history(
    array[_id], array[_job.epoch], '{failed}', array[_keep], _errors => array[left('Broken: ' || _message, 1000)],
    _failures => array[json_build_object('type', 'Broken', 'message', left(_message, 10000))],
    _running => _job.worker_id is not null, _at => _now
  );
  if _gone.unsuccessful is not null then
    perform stepwell.cancel_children(_gone.unsuccessful);
  end if;
  perform stepwell.release(
    _gone.ended, case when _admit then _gone.schedule_ids end, _gone.endings, _admitted => _gone.admitted,
    _at_once => false, _members => _gone.members
  );
  return true;
end
$$;
