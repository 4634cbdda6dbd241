-- Find the place of jobs that become ready now (_due) or later: the line of their first limit or rate, and their turn
-- among the fair keys of their queue and rank. Returns an element for each job, in order; a job that is not due has no
-- line and no turn yet.
-- A turn is a time, because jobs are claimed in the order of their times. A key with no waiting job takes the next turn
-- of its queue. Each further job of the key has a turn that is later by a quantum, divided by its weight. So a key with
-- 100,000 waiting jobs has one job at each turn, and a key with ten is between the first ten.
-- The search for the next turn begins at the clock, which follows the claims: before it, under a held snapshot, are the
-- dead rows of all turns that were ever taken.
create or replace function stepwell.line_up(
  _now timestamptz,
  _ids uuid[],
  _admissions json[],
  _queues text[],
  _ranks integer[],
  _due boolean[]
) returns stepwell.line[]
language plpgsql volatile
as $$
begin
  return array(
    with job as materialized (
      select u.n, u.admission, u.queue, u.rank, u.due,
        coalesce(u.admission #>> '{limits,0,key}', u.admission #>> '{rates,0,key}') as key,
        u.admission #>> '{fair,key}' as fair,
        interval '100 microseconds' / coalesce((u.admission #>> '{fair,weight}')::double precision, 1) as quantum
      from unnest(_admissions, _queues, _ranks, _due) with ordinality as u (admission, queue, rank, due, n)
    ), clock as materialized (
      select k.queue, k.rank, k.fair,
        greatest(
          coalesce(
            (
              select j.run_at from stepwell.job j
              where j.queue = k.queue and j.rank = k.rank and j.fair is not null and j.state in ('ready', 'blocked')
                and j.run_at >= coalesce(k.turn, '-infinity') and j.id <> all (_ids)
              order by j.queue, j.rank, j.run_at limit 1
            ),
            k.turn, _now
          ),
          (
            select j.run_at + k.quantum from stepwell.job j
            where j.queue = k.queue and j.rank = k.rank and j.fair = k.fair and j.state in ('ready', 'blocked')
              and j.run_at >= coalesce(k.turn, '-infinity') and j.id <> all (_ids)
            order by j.queue desc, j.rank desc, j.fair desc, j.run_at desc limit 1
          )
        ) as turn
      from (
        select j.queue, j.rank, j.fair, min(j.quantum) as quantum,
          (select c.turn from stepwell.turn_clock c where c.queue = j.queue and c.rank = j.rank) as turn
        from job j
        where j.due and j.fair is not null
        group by j.queue, j.rank, j.fair
      ) k
    )
    select row(
      j.admission, case when j.due then j.key end, j.fair,
      case
        when j.due
        then c.turn + (row_number() over (partition by j.queue, j.rank, j.fair, j.due order by j.n) - 1) * j.quantum
      end
    )::stepwell.line
    from job j
    left join clock c on c.queue = j.queue and c.rank = j.rank and c.fair = j.fair
    order by j.n
  );
end
$$;
