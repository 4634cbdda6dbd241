-- Numbers about the whole database for metrics, for one worker to ask: "ready" and "oldest", per queue, are how many
-- jobs are ready and for how many seconds the oldest has been; "workers" is how many workers are alive.
-- It is bounded: a count stops at _most_jobs, and queues after the first _most_queues are left out. The oldest job is
-- looked for in the first eight ranks of a queue, and is the first of a rank in the order of claims. It walks over dead
-- rows, so it is not to be asked often.
create or replace function stepwell.gauges(_most_queues integer default 100, _most_jobs integer default 10000)
returns table (name text, queue text, value double precision)
language plpgsql stable security definer
as $$
declare
  _now timestamptz := stepwell.now();
  _rank integer;
  _first record;
  _oldest timestamptz;
begin
  name := 'workers';
  value := (select count(*) from stepwell.worker w where w.lease_until > _now);
  return next;
  queue := '';
  for _queues in 1 .. least(_most_queues, 1000) loop
    queue := (
      select j.queue from stepwell.job j
      where j.state = 'ready' and j.queue > gauges.queue
      order by j.queue limit 1
    );
    exit when queue is null;
    name := 'ready';
    value := (
      select count(*)
      from (
        select from stepwell.job j
        where j.state = 'ready' and j.queue = gauges.queue
        limit greatest(0, least(_most_jobs, 100000))
      ) r
    );
    return next;
    _rank := -32769;
    _oldest := null;
    for _ranks in 1 .. 8 loop
      -- The run_at of a job with a fair key is its turn, which may be long before it was enqueued.
      select j.rank,
        case when j.fair is null then j.run_at else greatest(j.run_at, j.enqueued_at, j.claimed_at) end as due_at
      into _first from stepwell.job j
      where j.state = 'ready' and j.queue = gauges.queue and j.rank > _rank
      order by j.rank, j.run_at, j.id
      limit 1;
      exit when not found;
      _rank := _first.rank;
      _oldest := least(_oldest, _first.due_at);
    end loop;
    name := 'oldest';
    value := greatest(0, extract(epoch from _now - _oldest));
    return next;
  end loop;
end
$$;
