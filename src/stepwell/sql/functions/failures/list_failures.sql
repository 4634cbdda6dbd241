-- Groups of failures, the last seen first or, with _sort = 'count', the largest first: at most _limit, of one state and
-- one task or of all, after the group _after in that order. With _fingerprint, only that group. Counts and states
-- include what stepwell.fold_failures has yet to add, up to the 10,000 oldest tallies; the order does not. hours are
-- the counts of the last 24 hours.
create or replace function stepwell.list_failures(
  _state text default null,
  _task text default null,
  _sort text default 'last',
  _after uuid default null,
  _limit integer default 50,
  _fingerprint uuid default null
)
returns table (
  fingerprint uuid, task text, type text, frame text, state text, state_at timestamptz, reopened integer,
  reopened_at timestamptz, first_at timestamptz, last_at timestamptz, count bigint, hours bigint[], message text,
  job_id uuid
)
language plpgsql stable security definer
as $$
declare
  _hour timestamptz := date_trunc('hour', stepwell.now(), 'UTC');
  _by_count boolean := coalesce(_sort, 'last') = 'count';
begin
  if coalesce(_sort, 'last') not in ('last', 'count') then
    raise exception using errcode = 'invalid_parameter_value',
      message = format('stepwell: failures cannot be sorted by %s: give last or count', _sort);
  end if;
  return query
    with pending as materialized (
      select t.fingerprint, sum(t.count)::bigint as count, max(t.at) as last_at,
        coalesce(sum(t.count) filter (where t.at >= _hour), 0)::bigint as in_hour
      from (select * from stepwell.failure_tally order by id limit 10000) t
      group by t.fingerprint
    ), page as materialized (
      select g.*, coalesce(n.count, 0) as more, coalesce(n.in_hour, 0) as in_hour, n.last_at as more_at, a.again
      from stepwell.failure_group g
      left join pending n on n.fingerprint = g.fingerprint
      cross join lateral (select coalesce(g.state = 'resolved' and n.last_at > g.state_at, false) as again) a
      where (_fingerprint is null or g.fingerprint = _fingerprint)
        and (_state is null or case when a.again then 'open' else g.state end = _state)
        and (_task is null or g.task = _task)
        and (
          _after is null
          or not _by_count and (g.last_at, g.fingerprint)
            < (select a.last_at, a.fingerprint from stepwell.failure_group a where a.fingerprint = _after)
          or _by_count and (g.count, g.fingerprint)
            < (select a.count, a.fingerprint from stepwell.failure_group a where a.fingerprint = _after)
        )
      order by case when _by_count then g.count end desc, case when not _by_count then g.last_at end desc,
        g.fingerprint desc
      limit least(greatest(coalesce(_limit, 50), 1), 1000)
    )
    select p.fingerprint, p.task, p.type, p.frame, case when p.again then 'open' else p.state end, p.state_at,
      p.reopened + p.again::integer, case when p.again then p.more_at else p.reopened_at end, p.first_at,
      greatest(p.last_at, p.more_at), p.count + p.more,
      array(
        -- What is not folded yet is of this hour, or of the end of the one before.
        select coalesce(h.count, 0)
          + case s.n when 0 then p.in_hour when 1 then p.more - p.in_hour else 0 end
        from generate_series(23, 0, -1) as s (n)
        left join stepwell.failure_hour h
          on h.fingerprint = p.fingerprint and h.hour = _hour - s.n * interval '1 hour'
        order by s.n desc
      ),
      p.message, p.job_id
    from page p
    order by case when _by_count then p.count end desc, case when not _by_count then p.last_at end desc,
      p.fingerprint desc;
end
$$;
