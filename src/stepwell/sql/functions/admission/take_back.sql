-- Take permits back from ready jobs, where a limit or rate was lowered at run time and more are held than it allows:
-- the last jobs in order go back to the line of that key, and give up their permits for other keys, too. Running jobs
-- go on. So does a job that holds its permits from before a wait (Limit(hold=True)), because it is under way.
-- For stepwell.admit_keys, which holds the locks of the keys. Jobs that another session has locked are left out: that
-- session claims or ends them.
create or replace function stepwell.take_back(_keys text[]) returns void
language plpgsql volatile
as $$
declare
  _most_jobs constant integer := 1000;
  _now timestamptz := stepwell.now();
  _over record;
  _ids uuid[];
  _freed text[];
  _tell text[] := '{}';
begin
  for _over in
    -- One statement: a claim turns reserved tokens into used ones, and must not be seen half.
    select o.key, o.rate, o.count
    from (
      select s.key, false as rate,
        (select count(*) from stepwell.permit p where p.key = s.key and not p.rate) - s.most as count
      from stepwell.key_setting s
      where s.key = any (_keys) and s.most is not null
      union all
      select s.key, true,
        (select count(*) from stepwell.permit p where p.key = s.key and p.rate)
          -- As in stepwell.room_of.
          - floor(1e-6 + s.burst + coalesce(s.late, 0) - coalesce(
            (
              select stepwell.missing_tokens(b.used, b.used_at, s.burst + coalesce(s.late, 0), s.spacing, _now)
              from stepwell.bucket b where b.key = s.key
            ),
            0
          ))
      from stepwell.key_setting s
      where s.key = any (_keys) and s.spacing is not null
    ) o
    where o.count > 0
  loop
    _ids := array(
      select j.id from stepwell.job j
      where j.id = any (array(
          select p.job_id from stepwell.permit p where p.key = _over.key and p.rate = _over.rate
        ))
        -- As text: no index of all ready jobs.
        and j.state::text = 'ready'
        and (
          j.epoch = 0
          or (
            select not p.hold from stepwell.permit p
            where p.key = _over.key and p.rate = _over.rate and p.job_id = j.id
          )
        )
      order by j.rank desc, j.run_at desc, j.id desc
      limit least(_over.count, _most_jobs)
      for no key update skip locked
    );
    continue when cardinality(_ids) = 0;
    with returned as (
      delete from stepwell.permit p
      where p.job_id = any (_ids)
        and (not p.hold or (select j.epoch = 0 from stepwell.job j where j.id = p.job_id))
      returning p.key
    )
    select array_agg(distinct r.key) into _freed from returned r where r.key <> _over.key;
    update stepwell.job j set state = 'blocked', blocked_by = _over.key where j.id = any (_ids);
    -- Other keys have room now. Their locks cannot be taken in order any more.
    _tell := _tell || _freed;
    if _over.count > _most_jobs and cardinality(_ids) = _most_jobs then
      _tell := _tell || _over.key;
    end if;
  end loop;
  if cardinality(_tell) > 0 then
    perform stepwell.notify_blocked(array(select distinct t.key from unnest(_tell) as t (key)));
  end if;
end
$$;
