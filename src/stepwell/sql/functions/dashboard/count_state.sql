-- Count the jobs in a state, of one queue or of all, up to _most; more: there may be more than that. No index has the
-- succeeded jobs, or the finished jobs of a queue, apart: it looks at the newest only, and there may be more behind them.
create or replace function stepwell.count_state(
  _state stepwell.state,
  _queue text,
  _most integer,
  out counted integer,
  out more boolean
)
language plpgsql stable
as $$
declare
  _now timestamptz := stepwell.now();
  _look integer := case when _queue is null then _most + 1 else 2 * _most end;
begin
  case _state
    when 'ready' then
      if _queue is null then
        counted := (select count(*) from (select from stepwell.job j where j.state = 'ready' limit _most + 1) c);
      else
        counted := (
          select count(*) from (
            select from stepwell.job j where j.state = 'ready' and j.queue = _queue limit _most + 1
          ) c
        );
      end if;
    when 'running' then
      select count(*) filter (where _queue is null or r.queue = _queue), count(*) > _most into counted, more
      from (
        -- The order of the index on running jobs, so that it is used.
        select j.queue from stepwell.job j where j.state = 'running' order by j.worker_id limit _most + 1
      ) r;
    when 'succeeded' then
      select count(*) filter (where c.counts), count(*) = _most + 2000 into counted, more
      from (
        select h.state = 'succeeded' and h.expires_at > _now and (_queue is null or h.queue = _queue) as counts
        from stepwell.history h
        order by h.id desc
        limit _most + 2000
      ) c;
    when 'failed' then
      select count(*) filter (where c.counts), count(*) = _look into counted, more
      from (
        select h.expires_at > _now and (_queue is null or h.queue = _queue) as counts
        from stepwell.history h
        where h.state = 'failed'
        order by h.id desc
        limit _look
      ) c;
    when 'cancelled' then
      select count(*) filter (where c.counts), count(*) = _look into counted, more
      from (
        select h.expires_at > _now and (_queue is null or h.queue = _queue) as counts
        from stepwell.history h
        where h.state = 'cancelled'
        order by h.id desc
        limit _look
      ) c;
    else
      if _queue is null then
        counted := (
          select count(*) from (
            select from stepwell.job j
            where j.state in ('scheduled', 'waiting', 'blocked') and j.state = _state
            order by j.state, j.queue, j.id
            limit _most + 1
          ) c
        );
      else
        counted := (
          select count(*) from (
            select from stepwell.job j
            where j.state in ('scheduled', 'waiting', 'blocked') and j.state = _state and j.queue = _queue
            order by j.state, j.queue, j.id
            limit _most + 1
          ) c
        );
      end if;
  end case;
  more := coalesce(more, false) or counted > _most;
  counted := least(counted, _most);
end
$$;
