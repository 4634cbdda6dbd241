-- Admit the next blocked run of each of these schedules that has no other live run. Null: of every schedule, for
-- upkeep, in case a run ended without a call of this function or a schedule was skipped. Returns how many.
-- The schedule's row is locked, so that a tick that blocks a run and the end of the previous run see each other. The
-- end of a run must not wait long: a schedule that is locked for a quarter of a second is left to upkeep. A blocked run
-- that is locked is being cancelled, and that cancel admits the next one.
-- Two probes of job_schedule per schedule are enough, however many runs wait.
-- A run whose row a constraint refuses fails, and the next one is tried: up to ten in a call, then in upkeep.
create or replace function stepwell.admit(_schedule_ids uuid[]) returns integer
language plpgsql volatile security definer
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
  _keyed uuid[];
begin
  if _schedule_ids is not null then
    _ids := array(select distinct u.id from unnest(_schedule_ids) as u (id));
  else
    -- From schedule to schedule along the index, so that the cost does not grow with the blocked runs.
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
      returning j.id, j.queue, j.rank, j.state, j.run_at, j.admission is not null as keyed
    )
    select count(*), array_agg(row(a.queue, a.rank, a.run_at)::stepwell.place) filter (where a.state = 'ready'),
      extract(epoch from min(a.run_at) filter (where a.state = 'scheduled') - _now),
      array_agg(a.id) filter (where a.keyed)
    into _admitted, _places, _due_in, _keyed
    from admitted a;
  exception when data_exception or integrity_constraint_violation or program_limit_exceeded then
    -- The end of a run must not fail because of the next run: try each schedule by itself.
    _admitted := 0;
    foreach _schedule_id in array _ids loop
      loop
        _run_id := (
          select j.id from stepwell.job j
          where j.state = 'blocked' and j.schedule_id = _schedule_id and (
            select true from stepwell.job o
            where (o.state = 'blocked') is false and o.schedule_id = _schedule_id limit 1
          ) is null
          order by j.scheduled_for, j.id limit 1
        );
        -- Locked outside the block that may fail, so that the lock survives its rollback.
        perform from stepwell.job j where j.id = _run_id and j.state::text = 'blocked' for update skip locked;
        exit when not found;
        begin
          update stepwell.job j
          set state = case when j.run_at > _now then 'scheduled'::stepwell.state else 'ready'::stepwell.state end
          where j.id = _run_id
          returning j.queue, j.rank, j.run_at, j.state, j.admission is not null as keyed,
            extract(epoch from j.run_at - _now)::double precision as due_in
          into _run;
          _admitted := _admitted + 1;
          if _run.keyed then
            _keyed := _keyed || _run_id;
          end if;
          if _run.state = 'ready' then
            _places := _places || row(_run.queue, _run.rank, _run.run_at)::stepwell.place;
          else
            _due_in := least(_due_in, _run.due_in);
          end if;
          exit;
        exception when data_exception or integrity_constraint_violation or program_limit_exceeded then
          _why := 'it cannot be admitted: ' || sqlerrm;
        end;
        exit when _broken >= 10;
        begin
          perform stepwell.fail_broken(_run_id, _why, false);
          _broken := _broken + 1;
        exception when lock_not_available then
          exit;  -- another session has locked its children or its parent
        end;
      end loop;
    end loop;
  end;
  if _keyed is not null then
    perform stepwell.notify_blocked(stepwell.queue_again(_keyed));
  end if;
  perform stepwell.notify_ready(_places, _due_in);
  return _admitted;
end
$$;
