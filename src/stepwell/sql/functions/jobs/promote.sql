-- Make due jobs ready, in the order of run_at: scheduled jobs, and waiting jobs whose time has come. Also make jobs
-- ready whose args did not fit, if a worker that may claim them has registered, and jobs that late events wake.
-- Returns how many, and in how many seconds the next one is due (0: more are due already; null: none). A job that
-- cannot be made ready does not block the others: `failed` lists such jobs, with their tasks, queues and attempts, and
-- `why` the reasons.
-- _since: consider only jobs that became due within this many seconds; null: all jobs. While a transaction holds an old
-- snapshot, the index keeps an entry for every job that was ever due, and a look at all of them walks over these dead
-- entries. So workers rarely ask for all. `walked` counts the index entries of other jobs that it read.
create or replace function stepwell.promote(
  _limit integer default 5000,
  _since double precision default null,
  out promoted integer,
  out next_due double precision,
  out failed uuid[],
  out tasks text[],
  out queues text[],
  out attempts integer[],
  out why text[],
  out walked bigint
)
language plpgsql volatile security definer
as $$
declare
  _keys text[];
  _now timestamptz := stepwell.now();
  _from timestamptz := coalesce(_now - _since * interval '1 second', '-infinity');
  _read_before bigint := pg_stat_get_xact_tuples_returned(to_regclass('stepwell.job_due'));
  _places stepwell.place[];
  _durable uuid[];
  _keyed uuid[];
  _unsure uuid[];
  _released integer;
  _again_in double precision;
  _due record;
  _made record;
begin
  failed := '{}';
  tasks := '{}';
  queues := '{}';
  attempts := '{}';
  why := '{}';
  begin
    with due as materialized (
      select j.ctid, j.id, j.state = 'waiting' and j.unsure is not null as unsure
      from stepwell.job j
      where j.state in ('scheduled', 'waiting') and j.run_at > _from and j.run_at <= _now
      order by j.run_at
      limit _limit
      for no key update skip locked
    ), made as (
      update stepwell.job j
      set state = 'ready'
      where j.ctid = any (array(select d.ctid from due d where not d.unsure))
      returning j.id, j.queue, j.rank, j.run_at, j.durable, j.admission is not null as keyed
    )
    select count(*), array_agg(row(m.queue, m.rank, m.run_at)::stepwell.place),
      array_agg(m.id) filter (where m.durable), array_agg(m.id) filter (where m.keyed),
      array(select d.id from due d where d.unsure)
    into promoted, _places, _durable, _keyed, _unsure
    from made m;
    if cardinality(_unsure) > 0 then
      perform stepwell.look_again(_unsure);
    end if;
    if _durable is not null then
      perform stepwell.end_waits(_durable);
    end if;
  exception when data_exception or integrity_constraint_violation or program_limit_exceeded then
    -- A constraint refused at least one job. Try each by itself; 500 of them take a moment only.
    promoted := 0;
    _places := '{}';
    for _due in
      select j.id, j.task, j.queue, j.attempt
      from stepwell.job j
      where j.state in ('scheduled', 'waiting') and j.run_at > _from and j.run_at <= _now
      order by j.run_at
      limit least(_limit, 500)
      for no key update skip locked
    loop
      begin
        select p.queue, p.rank, p.run_at, p.why into _made from stepwell.promote_one(_due.id) p;
        if _made.why is null then
          promoted := promoted + 1;
          if _made.queue is not null then
            _places := _places || row(_made.queue, _made.rank, _made.run_at)::stepwell.place;
          end if;
        else
          failed := failed || _due.id;
          tasks := tasks || _due.task;
          queues := queues || _due.queue;
          attempts := attempts || _due.attempt::integer;
          why := why || _made.why;
        end if;
      exception when others then
        continue;
      end;
    end loop;
  end;
  if _keyed is not null then
    perform stepwell.admit_keys(stepwell.queue_again(_keyed));
  end if;
  perform stepwell.notify_ready(_places, null);
  perform from stepwell.job j
  where j.misfits is not null and j.state = 'scheduled' and j.run_at = j.misfit_until
  order by j.task, j.misfits, j.queue limit 1;
  if found then
    select r.released, r.again_in into _released, _again_in from stepwell.release_misfits() r;
    promoted := promoted + _released;
  end if;
  perform from stepwell.event e where e.late is not null order by e.late_turn, e.id limit 1;
  if found then
    -- Every second, until all are delivered. A failed delivery must not block due jobs.
    _again_in := least(_again_in, 1);
    begin
      perform stepwell.deliver_late();
    exception when data_exception or integrity_constraint_violation or program_limit_exceeded or lock_not_available
      or deadlock_detected then
      null;
    end;
  end if;
  -- Rates whose buckets have tokens again.
  perform from stepwell.bucket b where b.next_at is not null limit 1;
  if found then
    -- Tokens that were used in the future: the clock was set back, and the next times are wrong by as much. Only the
    -- first of them, which bounds the cost; the others come after them.
    update stepwell.bucket b set used_at = _now, next_at = _now
    where b.key = any (array(
      select d.key from stepwell.bucket d
      where d.used_at > _now + interval '1 second'
        and d.key = any (array(
          select f.key
          from (
            select n.key, n.used_at from stepwell.bucket n where n.next_at is not null order by n.next_at limit 100
          ) f
          where f.used_at > _now + interval '1 second'
        ))
      for no key update skip locked
    ));
    _keys := array(select b.key from stepwell.bucket b where b.next_at <= _now order by b.next_at limit 500);
    perform stepwell.admit_keys(_keys);
    perform stepwell.notify_queues(array(
      select substr(k.key, 2) from unnest(_keys) as k (key) where k.key like E'\x02%'
    ));
    -- Whoever finds a bucket empty sets its time anew. Where nobody waits for it any more, the time would stay due, and
    -- workers would look again and again.
    with cleared as (
      update stepwell.bucket b set next_at = null
      where b.key = any (array(
        select d.key from stepwell.bucket d
        where d.key = any (_keys) and d.next_at <= _now
        for no key update skip locked
      ))
      returning b.key
    )
    select array_agg(c.key) into _keys from cleared c
    where (select true from stepwell.job j where j.blocked_by = c.key limit 1);
    -- All tokens of these were reserved, so the next claim must notify the workers. A claim that committed a moment ago
    -- did not: it relied on the time that was set.
    perform stepwell.notify_blocked(_keys);
    _again_in := least(
      _again_in,
      (
        select greatest(0.001, extract(epoch from b.next_at - _now)) from stepwell.bucket b
        where b.next_at is not null order by b.next_at limit 1
      )
    );
  end if;
  -- Counts that the ends of members could not add to their group.
  perform from stepwell.group_tally t order by t.id limit 1;
  if found then
    _again_in := least(_again_in, stepwell.fold_groups());
  end if;
  select greatest(0, extract(epoch from j.run_at - _now)) into next_due
  from stepwell.job j
  where j.state in ('scheduled', 'waiting') and j.run_at > _from and j.run_at < 'infinity'
  order by j.run_at limit 1;
  -- Each promoted job was read twice: as a due job, and as a dead row before the next one.
  walked := pg_stat_get_xact_tuples_returned(to_regclass('stepwell.job_due')) - _read_before - 2 * promoted;
  walked := greatest(0, walked);
  next_due := least(next_due, _again_in);
end
$$;
