-- Make those of these groups that do not exist; the k-th was first seen at _ats[k]. A task has at most 200 groups,
-- besides one for all its other failures: types of exceptions that are made at run time must not fill the database, nor
-- the page. Once a task has too many, the failures that have no group are counted in that one.
-- Each task has an advisory lock, so that no session waits for the uncommitted group of another. Groups whose lock is
-- not free are left to the next stepwell.fold_failures.
create or replace function stepwell.open_failure_groups(
  _fingerprints uuid[],
  _tasks text[],
  _types text[],
  _frames text[],
  _messages text[],
  _job_ids uuid[],
  _ats timestamptz[]
) returns void
language plpgsql volatile
as $$
declare
  _most constant integer := 200;
  _task text;
  _room integer;
  _missing integer;
  _other uuid;
  _at timestamptz;
begin
  for _task in
    select distinct u.task from unnest(_fingerprints, _tasks) as u (fingerprint, task)
    where not exists (select from stepwell.failure_group g where g.fingerprint = u.fingerprint)
    order by u.task
  loop
    continue when not pg_try_advisory_xact_lock(1937007986, hashtext(_task));
    -- A statement of its own, which sees the groups that the last holder of the lock has committed.
    select greatest(_most - count(*), 0) into _room
    from (select from stepwell.failure_group g where g.task = _task limit _most) c;
    with missing as materialized (
      select distinct on (u.fingerprint) u.fingerprint, u.type, u.frame, u.message, u.job_id, u.at
      from unnest(_fingerprints, _tasks, _types, _frames, _messages, _job_ids, _ats)
        as u (fingerprint, task, type, frame, message, job_id, at)
      where u.task = _task and not exists (select from stepwell.failure_group g where g.fingerprint = u.fingerprint)
      order by u.fingerprint
    ), made as (
      insert into stepwell.failure_group (fingerprint, task, type, frame, message, job_id, first_at, last_at)
      select m.fingerprint, _task, m.type, m.frame, m.message, m.job_id, m.at, m.at
      from (select m.* from missing m order by m.fingerprint limit _room) m
      on conflict do nothing
    )
    select count(*), (select min(o.at) from (select m.at from missing m order by m.fingerprint offset _room) o)
    into _missing, _at
    from missing m;
    if _missing > _room then
      _other := stepwell.fingerprint(_task, '(other)', null);
      insert into stepwell.failure_group (fingerprint, task, type, message, first_at, last_at, is_full)
      values (_other, _task, '(other)', '', _at, _at, true)
      on conflict do nothing;
      update stepwell.failure_group g set is_full = true
      where g.fingerprint = any (array(
        select o.fingerprint from stepwell.failure_group o where o.fingerprint = _other and not o.is_full
        for no key update skip locked
      ));
    end if;
  end loop;
end
$$;
