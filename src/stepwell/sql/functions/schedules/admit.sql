-- Let the next run of each of these schedules go, where none is live but those that wait for it. Null: of every schedule,
-- for upkeep, should a run have ended in a way that called nobody, or nobody have come to it. Returns how many.
-- The schedule's row is locked, so a tick that puts a run in line and the end of the run before it see each other. Whoever
-- ends a run must not wait for long, though: a row that somebody holds for a quarter of a second is left to upkeep; and a
-- run that somebody holds is being cancelled, and whoever cancels it lets the next one go.
-- Two probes of job_schedule answer for each schedule, however many runs wait.
-- A run whose row refuses to go fails, and the one after it is tried: ten such runs in a call, the rest is left to upkeep.
create or replace function stepwell.admit(_schedule_ids uuid[]) returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '250ms'
as $$
declare
  _now timestamptz := stepwell.now();
  _ids uuid[];
  _admitted integer;
  _places stepwell.place[];
  _due_in double precision;
  _broken integer := 0;
  _schedule_id uuid;
  _run_id uuid;
  _run record;
  _why text;
begin
  if _schedule_ids is not null then
    _ids := array(select distinct u.id from unnest(_schedule_ids) as u (id));
  else
    -- From schedule to schedule along the index, so that it costs no more when many runs wait.
    _ids := array(
      with recursive waiting as (
        (
          select j.schedule_id as id from stepwell.job j
          where j.state = 'blocked' and j.schedule_id is not null
          order by j.schedule_id limit 1
        )
        union all
        select (
          select j.schedule_id from stepwell.job j
          where j.state = 'blocked' and j.schedule_id > w.id
          order by j.schedule_id limit 1
        )
        from waiting w
        where w.id is not null
      )
      select w.id from waiting w
      where w.id is not null and (
        select true from stepwell.job o where (o.state = 'blocked') is false and o.schedule_id = w.id limit 1
      ) is null
      limit 1000
    );
  end if;
  if cardinality(_ids) = 0 then
    return 0;
  end if;
  begin
    perform from stepwell.schedule s where s.id = any (_ids) and s.overlap <> 'allow' order by s.id for no key update;
  exception when lock_not_available then
    return 0;
  end;
  begin
    with first as (
      select (
        select j.id from stepwell.job j
        where j.state = 'blocked' and j.schedule_id = u.id
        order by j.scheduled_for, j.id limit 1
      ) as id
      from unnest(_ids) as u (id)
      where (
        select true from stepwell.job o where (o.state = 'blocked') is false and o.schedule_id = u.id limit 1
      ) is null
    ), free as materialized (
      select j.id from stepwell.job j
      where j.id = any (array(select f.id from first f)) and j.state::text = 'blocked'
      order by j.id
      for no key update skip locked
    ), admitted as (
      update stepwell.job j
      set state = case when j.run_at > _now then 'scheduled'::stepwell.state else 'ready'::stepwell.state end
      where j.id = any (array(select f.id from free f))
      returning j.queue, j.rank, j.state, j.run_at
    )
    select count(*), array_agg(row(a.queue, a.rank, a.run_at)::stepwell.place) filter (where a.state = 'ready'),
      extract(epoch from min(a.run_at) filter (where a.state = 'scheduled') - _now)
    into _admitted, _places, _due_in
    from admitted a;
  exception when data_exception or integrity_constraint_violation or program_limit_exceeded then
    -- Whoever ends a run must not fail by the next one: each schedule is tried by itself.
    _admitted := 0;
    foreach _schedule_id in array _ids loop
      loop
        _run_id := (
          select j.id from stepwell.job j
          where j.state = 'blocked' and j.schedule_id = _schedule_id and (
            select true from stepwell.job o where (o.state = 'blocked') is false and o.schedule_id = _schedule_id limit 1
          ) is null
          order by j.scheduled_for, j.id limit 1
        );
        -- Locked before the block that may fail, so that the lock outlives that.
        perform from stepwell.job j where j.id = _run_id and j.state::text = 'blocked' for update skip locked;
        exit when not found;
        begin
          update stepwell.job j
          set state = case when j.run_at > _now then 'scheduled'::stepwell.state else 'ready'::stepwell.state end
          where j.id = _run_id
          returning j.queue, j.rank, j.run_at, j.state, extract(epoch from j.run_at - _now)::double precision as due_in
          into _run;
          _admitted := _admitted + 1;
          if _run.state = 'ready' then
            _places := _places || row(_run.queue, _run.rank, _run.run_at)::stepwell.place;
          else
            _due_in := least(_due_in, _run.due_in);
          end if;
          exit;
        exception when data_exception or integrity_constraint_violation or program_limit_exceeded then
          _why := 'its turn has come and it cannot go: ' || sqlerrm;
        end;
        exit when _broken >= 10;
        begin
          perform stepwell.fail_broken(_run_id, _why, false);
          _broken := _broken + 1;
        exception when lock_not_available then
          exit;  -- somebody holds its children or its parent
        end;
      end loop;
    end loop;
  end;
  perform stepwell.notify_ready(_places, _due_in);
  return _admitted;
end
$$;
