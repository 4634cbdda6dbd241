-- When the ready job of a queue that has been due for longest was due: the first of each rank, for at most 50 ranks.
-- The run_at of a job with a fair key is its turn, which may be long before it was enqueued.
create or replace function stepwell.oldest_ready(_queue text) returns timestamptz
language plpgsql stable
as $$
begin
  return (
    with recursive first as (
      (
        select j.rank, 1 as n,
          case when j.fair is null then j.run_at else greatest(j.run_at, j.enqueued_at, j.claimed_at) end as due_at
        from stepwell.job j
        where j.state = 'ready' and j.queue = _queue
        order by j.rank, j.run_at, j.id
        limit 1
      )
      union all
      select n.rank, f.n + 1, n.due_at
      from first f
      cross join lateral (
        select j.rank,
          case when j.fair is null then j.run_at else greatest(j.run_at, j.enqueued_at, j.claimed_at) end as due_at
        from stepwell.job j
        where j.state = 'ready' and j.queue = _queue and j.rank > f.rank
        order by j.rank, j.run_at, j.id
        limit 1
      ) n
      where f.n < 50
    )
    select nullif(nullif(min(f.due_at), 'infinity'), '-infinity') from first f
  );
end
$$;
