-- The queues after _after, in order: each with its jobs by state, its oldest ready job, its settings, its workers, and
-- its runs in a range of time, as stepwell.stat_names has them; a null range reads none. A count stops at _most, which
-- is at most 10,001. When _milliseconds are gone, further counts stop at 101.
create or replace function stepwell.dashboard_queues(
  _after text default null,
  _limit integer default 50,
  _milliseconds integer default 60,
  _name text default null,
  _range text default '1h',
  _most integer default 10001
)
returns json
language plpgsql stable security definer
as $$
declare
  _names text[];
  _one text;
  _now timestamptz := stepwell.now();
  _stop integer := least(greatest(coalesce(_most, 10001), 1), 10001);
  _until timestamptz := clock_timestamp() + least(greatest(coalesce(_milliseconds, 60), 0), 10000) * interval '1 ms';
  _counts json[] := '{}';
  _running json;
  _page integer := least(greatest(coalesce(_limit, 50), 1), 500);
begin
  _names := case when _name is null then stepwell.queue_names(_after, _page + 1) else array[_name] end;
  _running := (
    select json_object_agg(r.queue, r.count) from (
      select r.queue, count(*) as count
      from (select j.queue from stepwell.job j where j.state = 'running' order by j.worker_id limit 10001) r
      group by r.queue
    ) r
  );
  foreach _one in array _names[:_page] loop
    if clock_timestamp() > _until then
      _stop := least(_stop, 101);
    end if;
    -- Inline, not stepwell.count_state: a page has many queues.
    _counts := _counts || json_build_object(
      'ready', (
        select count(*) from (select from stepwell.job j where j.state = 'ready' and j.queue = _one limit _stop) c
      ),
      'running', coalesce((_running ->> _one)::integer, 0),
      'scheduled', (
        select count(*) from (
          select from stepwell.job j
          where j.state in ('scheduled', 'waiting', 'blocked') and j.state = 'scheduled' and j.queue = _one
          limit _stop
        ) c
      ),
      'waiting', (
        select count(*) from (
          select from stepwell.job j
          where j.state in ('scheduled', 'waiting', 'blocked') and j.state = 'waiting' and j.queue = _one
          limit _stop
        ) c
      ),
      'blocked', (
        select count(*) from (
          select from stepwell.job j
          where j.state in ('scheduled', 'waiting', 'blocked') and j.state = 'blocked' and j.queue = _one
          limit _stop
        ) c
      ),
      'most', _stop - 1
    );
  end loop;
  return json_build_object(
    'queues', coalesce(
      (
        select json_agg(
          json_build_object(
            'name', u.name, 'counts', u.counts, 'paused_at', p.asked_at, 'limit', s.most, 'rate', 1 / s.spacing,
            'burst', s.burst, 'oldest_ready_at', stepwell.oldest_ready(u.name),
            'workers', (
              select count(*) from stepwell.worker w
              where w.lease_until > _now and exists (
                select from unnest(w.queues) as q (name)
                where q.name = u.name or (right(q.name, 1) = '*' and starts_with(u.name, left(q.name, -1)))
              )
            ),
            'stats', h.stats
          )
          order by u.n
        )
        from unnest(_names[:_page], _counts) with ordinality as u (name, counts, n)
        left join stepwell.control p on p.action = 'pause' and p.scope = 'queue' and p.name = u.name
        left join stepwell.queue_setting s on s.name = u.name
        left join stepwell.stat_names(_range, false, case when _range is null then '{}' else _names[:_page] end) h
          on h.name = u.name
      ),
      '[]'
    ),
    'everything_paused_at', (
      select c.asked_at from stepwell.control c where c.action = 'pause' and c.scope = 'everything'
    ),
    'next', case when cardinality(_names) > _page then _names[_page] end
  );
end
$$;
