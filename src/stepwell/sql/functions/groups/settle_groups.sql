-- Add the counts of these members, and all counts in stepwell.group_tally, to their groups. A group of which all
-- members have ended ends, once, and its callback starts. Groups that another session has locked are left out. Returns
-- the others.
create or replace function stepwell.settle_groups(_groups uuid[], _members stepwell.member_end[]) returns uuid[]
language plpgsql volatile
as $$
declare
  _now timestamptz := stepwell.now();
  _settled uuid[];
  _live integer;
  _ended uuid[];
  _due uuid[];
begin
  _settled := array(
    select l.id from (
      select g.id from stepwell.job_group g where g.id = any (_groups) order by g.id for no key update skip locked
    ) l
  );
  if cardinality(_settled) = 0 then
    return _settled;
  end if;
  -- A statement of its own, with a new snapshot: it sees all that was committed before the lock.
  with noted as (
    delete from stepwell.group_tally t
    where t.group_id = any (_settled)
    returning t.id, t.group_id, t.succeeded, t.failed, t.cancelled, t.changes
  ), change as (
    select c.group_id, sum(c.succeeded)::integer as succeeded, sum(c.failed)::integer as failed,
      sum(c.cancelled)::integer as cancelled,
      sum(c.succeeded + c.failed + c.cancelled)::integer as ended,
      array_agg(c.changes order by c.n) filter (where c.changes is not null) as changes
    from (
      select n.id as n, n.group_id, n.succeeded, n.failed, n.cancelled, n.changes from noted n
      union all
      select 9223372036854775807, m.group_id, count(*) filter (where m.state = 'succeeded'),
        count(*) filter (where m.state = 'failed'), count(*) filter (where m.state = 'cancelled'),
        to_jsonb(
          (
            array_agg(jsonb_build_object('id', m.id, 'error', coalesce(m.error, '')))
              filter (where m.state = 'failed')
          )[:10]
        )
      from unnest(_members) as m
      group by m.group_id
      union all
      -- An empty group has nothing to count.
      select 0, s.id, 0, 0, 0, null from unnest(_settled) as s (id) where _members is null
    ) c
    group by c.group_id
  ), counted as (
    update stepwell.job_group g
    set succeeded = g.succeeded + c.succeeded, failed = g.failed + c.failed, cancelled = g.cancelled + c.cancelled,
      failures = case when c.changes is null then g.failures else stepwell.merge_failures(g.failures, c.changes) end,
      finished_at = case when g.succeeded + g.failed + g.cancelled + c.ended = g.total then _now end,
      expires_at = case
        when g.succeeded + g.failed + g.cancelled + c.ended = g.total then stepwell.expiry(_now, g.keep)
        else g.expires_at
      end
    from change c
    where g.id = any (_settled) and g.id = c.group_id and g.finished_at is null
    returning g.id, g.finished_at
  )
  select count(*), array_agg(c.id) filter (where c.finished_at is not null) into _live, _ended from counted c;
  -- Most calls end no group. A group that had ended before may have a callback that was locked, or was retried.
  if _ended is not null or _live < cardinality(_settled) then
    _due := array(
      select g.id from stepwell.job_group g
      where g.id = any (_settled) and g.finished_at is not null and g.then_id is not null and not g.then_started
    );
    if cardinality(_due) > 0 then
      perform stepwell.start_callbacks(_due);
    end if;
  end if;
  if _ended is not null then
    perform stepwell.release(_ended);
  end if;
  return _settled;
end
$$;
