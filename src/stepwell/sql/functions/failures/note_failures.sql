-- Count failed attempts, in the transaction that records them. The k-th element of each array is for one group: _counts
-- of its attempts have failed, and the message and job are those of one of them.
-- The counts are rows of stepwell.failure_tally, which stepwell.fold_failures adds to their groups, so that no worker
-- waits for the row of a group, however many fail with the same fingerprint at once. Here only two rare changes are
-- made to groups, and neither waits for a lock: a new group is made, and a resolved one is opened again.
create or replace function stepwell.note_failures(
  _fingerprints uuid[],
  _tasks text[],
  _types text[],
  _frames text[],
  _messages text[],
  _job_ids uuid[],
  _counts integer[]
) returns void
language plpgsql volatile
as $$
declare
  _now timestamptz := stepwell.now();
  _known integer;
  _resolved uuid[];
begin
  insert into stepwell.failure_tally (fingerprint, at, count, task, type, frame, message, job_id)
  select u.fingerprint, _now, u.count, u.task, u.type, u.frame, u.message, u.job_id
  from unnest(_fingerprints, _tasks, _types, _frames, _messages, _job_ids, _counts)
    as u (fingerprint, task, type, frame, message, job_id, count);
  select count(*), array_agg(g.fingerprint) filter (where g.state = 'resolved') into _known, _resolved
  from stepwell.failure_group g
  where g.fingerprint = any (_fingerprints);
  if _resolved is not null then
    update stepwell.failure_group g
    set state = 'open', reopened = g.reopened + 1, reopened_at = _now
    where g.fingerprint = any (array(
      select r.fingerprint from stepwell.failure_group r
      where r.fingerprint = any (_resolved) and r.state = 'resolved'
      for no key update skip locked
    ));
  end if;
  if _known < cardinality(_fingerprints) then
    perform stepwell.open_failure_groups(
      _fingerprints, _tasks, _types, _frames, _messages, _job_ids,
      array_fill(_now, array[cardinality(_fingerprints)])
    );
  end if;
end
$$;
