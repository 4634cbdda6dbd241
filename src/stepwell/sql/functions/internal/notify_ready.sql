-- Notify the workers of the places at which jobs became ready, and of the number of seconds after which another job is
-- due. It is a hint: it never fails and never makes the commit fail (see stepwell.notify).
-- A worker claims from the place in the payload, so it does not walk over rows in front of it. The payload has the
-- rank, the last rank, the time in microseconds and the queue. Each rank of a queue has its own notification, because a
-- claim across ranks would walk over all dead rows between them. If there are many ranks, one notification covers all.
create or replace function stepwell.notify_ready(_places stepwell.place[], _due_in double precision) returns void
language plpgsql volatile
as $$
declare
  _most_ranks constant integer := 8;  -- the same in stepwell.first_ready
begin
  if pg_notification_queue_usage() >= 0.5 then
    return;
  end if;
  -- Workers of schema 6 listen on stepwell_ready, for the queue alone. Most calls have one place and need no grouping.
  if cardinality(_places) = 1 then
    perform pg_notify('stepwell_ready', left(_places[1].queue, 1500)),
      pg_notify(
        'stepwell_ready_at',
        stepwell.place_text(_places[1].queue, _places[1].rank, _places[1].rank, _places[1].run_at)
      );
  elsif cardinality(_places) > 1 then
    perform pg_notify('stepwell_ready', left(t.queue, 1500)),
      pg_notify(
        'stepwell_ready_at',
        stepwell.place_text(t.queue, t.rank, case when t.ranks > _most_ranks then 32767 else t.rank end, t.run_at)
      )
    from (
      select r.queue, r.rank, r.run_at, count(*) over (partition by r.queue) as ranks,
        row_number() over (partition by r.queue order by r.rank) as n
      from (select p.queue, p.rank, min(p.run_at) as run_at from unnest(_places) p group by p.queue, p.rank) r
    ) t
    where t.ranks <= _most_ranks or t.n = 1;
  end if;
  if _due_in is not null then
    perform pg_notify('stepwell_due', ceil(greatest(0, least(_due_in, 3155760000)) * 1000)::bigint::text);
  end if;
end
$$;
